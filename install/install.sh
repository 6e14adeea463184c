#!/bin/sh
# install.sh install|uninstall|install-user|uninstall-user|wheels: the make targets of these names.
#
# Variables, all optional: PYTHON, PREFIX, DESTDIR (build a tree for a package: start nothing), VENVDIR, SYSCONFDIR,
# SYSTEMD_UNIT_DIR, WHEELS (a folder to install from instead of an index), EXTRAS=parquet|fleet|none,
# READERS=everyone|group, INTERVAL=15s, CONTAINERS=yes|no, PURGE=1.
#
# All that belongs to gua is in VENVDIR. VENVDIR/installed-files lists what had to go elsewhere, and the folders made
# for it (with a slash at the end), so that upgrades and uninstall know exactly what is theirs.
# shellcheck source-path=SCRIPTDIR disable=SC2086 # to check: shellcheck -x install/install.sh
set -eu
umask 022 # whatever root's is: the service and its readers are other users

target=$1
here=$(cd "$(dirname "$0")" && pwd)
source=$(dirname "$here")
kit=$source/systemd
commands='gua gua-sample gua-report gua-containers'
timers='gua-sample.timer gua-rollup.timer'
services='gua-sample.service gua-rollup.service'
container_units='gua-containers.path gua-containers.service' # on request

say() { printf '%s\n' "$*"; }
refuse() { printf '%s\n' "$*" >&2; exit 1; }
is_user() { case $target in *-user) ;; *) return 1 ;; esac; }
is_live() { [ -z "$DESTDIR" ]; } # not a tree for a package, but this machine
exists() { [ -e "$1" ] || [ -L "$1" ]; }
xdg_folder() { case $1 in /*) say "$1" ;; *) say "$HOME/$2" ;; esac; } # a relative one is to be ignored

set_paths() {
    PYTHON=${PYTHON:-python3} DESTDIR=${DESTDIR-} WHEELS=${WHEELS-} EXTRAS=${EXTRAS-}
    READERS=${READERS-} INTERVAL=${INTERVAL-} CONTAINERS=${CONTAINERS-} PURGE=${PURGE-}
    if is_user; then
        systemctl='systemctl --user' units=$kit/user configs=
        PREFIX=${PREFIX:-$HOME/.local} SYSCONFDIR=
        VENVDIR=${VENVDIR:-$(xdg_folder "${XDG_DATA_HOME-}" .local/share)/gua}
        SYSTEMD_UNIT_DIR=${SYSTEMD_UNIT_DIR:-$(xdg_folder "${XDG_CONFIG_HOME-}" .config)/systemd/user}
        history=$(xdg_folder "${XDG_STATE_HOME-}" .local/state)/gua
        interval_drop_in=$SYSTEMD_UNIT_DIR/gua-sample.timer.d/10-interval.conf
    else
        systemctl=systemctl units=$kit configs='gua-sample.env gua.toml'
        PREFIX=${PREFIX:-/usr/local} SYSCONFDIR=${SYSCONFDIR:-/etc} VENVDIR=${VENVDIR:-/opt/gua}
        SYSTEMD_UNIT_DIR=${SYSTEMD_UNIT_DIR:-$PREFIX/lib/systemd/system}
        history=/var/lib/gua spool=/var/spool/gua/notes
    fi
    case $PURGE in '' | 0 | no) PURGE= ;; 1 | yes) ;; *) refuse "bad PURGE=$PURGE: expected 1" ;; esac
    case $DESTDIR in '' | /*) ;; *) DESTDIR=$PWD/$DESTDIR ;; esac
    case $WHEELS in '' | /*) ;; *) WHEELS=$PWD/$WHEELS ;; esac
    DESTDIR=${DESTDIR%/} VENVDIR=${VENVDIR%/}
    root=$DESTDIR$VENVDIR stage=$DESTDIR$VENVDIR.new
    # Not in SYSCONFDIR: systemd looks here, whatever that is.
    readers_drop_in=/etc/systemd/system/gua-.service.d/10-readers.conf
    is_user || interval_drop_in=/etc/systemd/system/gua-sample.timer.d/10-interval.conf
}

# -- Files outside the virtual environment.

substitution() { # FROM TO: for sed. systemd and its shells want a path with blanks in quotes, and a URL without them.
    from=$(printf %s "$1" | sed 's/[][\.*^$|]/\\&/g') to=$(printf %s "$2" | sed 's/[\&|]/\\&/g')
    case $2 in
    *' '*)
        say "/^Exec/s|$from\\([^ ']*\\)|\"$to\\1\"|g"
        say "/^Documentation/s|$from|$(say "$to" | sed 's/ /%%20/g')|g"
        say "/^Exec/!{ /^Documentation/!s|$from|$to|g; }"
        ;;
    *) say "s|$from|$to|g" ;;
    esac
}

fill_in() { # FILE: with this installation's paths for the default ones
    sed -e "$(substitution /opt/gua "$VENVDIR")" -e "$(substitution /etc/gua/ "${SYSCONFDIR:-/etc}/gua/")" \
        -e "$(substitution %h/.local/share/gua "$VENVDIR")" -e "$(substitution %h/.local/state/gua "$history")" "$1"
}

make_folder() {
    [ ! -d "$DESTDIR$1" ] || return 0
    make_folder "$(dirname "$1")"
    mkdir "$DESTDIR$1"
    say "$1/" >>"$files"
}

list() { # PATH, before it is made
    exists "$DESTDIR$1" || say "$1" >>"$work/new-files"
    say "$1" >>"$files"
}

put() { # FILE PATH
    make_folder "$(dirname "$2")"
    list "$2"
    fill_in "$1" >"$work/filled-in"
    install -m 0644 "$work/filled-in" "$DESTDIR$2"
}

put_config() { # NAME: unless it was edited, that is, differs from what was shipped before
    path=$SYSCONFDIR/gua/$1
    fill_in "$kit/$1" >"$stage/share/gua/$1"
    if exists "$DESTDIR$path" && ! cmp -s "$root/share/gua/$1" "$DESTDIR$path"; then
        list "$path"
    else
        put "$kit/$1" "$path"
    fi
}

put_policy() { # of this machine: whoever installs a package may have other thresholds
    ! is_live || "$stage/bin/python" -I -c 'from gua_report.config import load_config
print("GUA_POLICY=--policy=" + ",".join(map(repr, load_config(None).policy)))' >"$stage/share/gua/policy.env" || say \
        "the sampler goes by the default thresholds until make install can read gua.toml"
}

put_readers() { # a choice that stays until another is made
    case $READERS in
    group) put "$kit/gua-readers.conf" "$readers_drop_in" ;;
    everyone) rm -f "$DESTDIR$readers_drop_in" ;;
    *) [ ! -e "$DESTDIR$readers_drop_in" ] || list "$readers_drop_in" ;;
    esac
}

put_interval() { # a choice that stays until another is made
    case $INTERVAL in
    '') [ ! -e "$DESTDIR$interval_drop_in" ] || list "$interval_drop_in" ;;
    30s)
        rm -f "$DESTDIR$interval_drop_in"
        rmdir "$DESTDIR${interval_drop_in%/*}" 2>/dev/null || : # unless somebody else has something there
        ;;
    *)
        sed -e "s|@interval@|$INTERVAL|" -e "s|@calendar@|$calendar|" "$kit/gua-interval.conf" >"$work/interval.conf"
        put "$work/interval.conf" "$interval_drop_in"
        ;;
    esac
}

put_containers() {
    [ "$CONTAINERS" = yes ] || return 0
    for name in $container_units; do put "$units/$name" "$SYSTEMD_UNIT_DIR/$name"; done
    timers="$timers gua-containers.path"
}

put_files() {
    make_folder "$PREFIX/bin"
    for name in $commands; do
        list "$PREFIX/bin/$name"
        ln -sfn "$VENVDIR/bin/$name" "$DESTDIR$PREFIX/bin/$name"
    done
    for name in $services; do put "$units/$name" "$SYSTEMD_UNIT_DIR/$name"; done
    for name in $timers; do put "$kit/$name" "$SYSTEMD_UNIT_DIR/$name"; done
    for name in $configs; do put_config "$name"; done
    is_user || put "$kit/gua.sysusers" "$PREFIX/lib/sysusers.d/gua.conf"
    is_user || put_readers
    put_containers
    put_interval
}

remove_files() { # OLD NEW: those that the first lists and the second does not; edited configuration stays
    grep -v '/$' "$1" | grep -vxF -f "$2" | while IFS= read -r path; do
        # Who may read the history is said for as long as there is one.
        [ -n "$PURGE" ] || [ "$path" != "$readers_drop_in" ] || [ ! -d "$DESTDIR$history" ] || continue
        shipped=$root/share/gua/${path##*/}
        if [ -z "$PURGE" ] && [ -e "$shipped" ] && exists "$DESTDIR$path" && ! cmp -s "$shipped" "$DESTDIR$path"; then
            say "kept $path, which was edited"
            continue
        fi
        case $path in # a timer that only moved, with another PREFIX, goes on
        *.timer | *.path) ! is_live || grep -q "/${path##*/}\$" "$2" || $systemctl --quiet disable --now "${path##*/}" || : ;;
        esac
        rm -f "$DESTDIR$path"
    done
}

remove_folders() { # LIST: those in it that are empty
    grep '/$' "$1" | LC_ALL=C sort -r | while IFS= read -r path; do rmdir "$DESTDIR$path" 2>/dev/null || :; done
}

# -- The targets.

begin() { # from here on there is something to clean up
    ! is_live || is_user || lock
    work=$(mktemp -d) files=$work/installed-files
    touch "$files" "$work/new-files"
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

lock() { # two at once would take each other's stage away
    [ -e /run/gua-install.lock ] || (umask 077 && : >/run/gua-install.lock) # any user could lock a file that he may read
    exec 9<>/run/gua-install.lock
    ! command -v flock >/dev/null || flock -n 9 || refuse "another make install or uninstall is at work; wait for it"
}

clean_up() { # after success there is nothing left to undo
    restore
    rm -rf "$stage"
    while IFS= read -r path; do rm -f "$DESTDIR$path"; done <"$work/new-files"
    remove_folders "$files"
    rm -rf "$work"
}

install_all() {
    was_started=
    check_machine
    check_install
    say "building the virtual environment in $root (up to a minute) ..."
    begin
    restore
    rm -rf "$stage"
    cp "$root/installed-files" "$work/old-files" 2>/dev/null || : >"$work/old-files"
    [ ! -e "$root/timers-started" ] || was_started=yes
    # A choice that stays until another is made.
    [ -n "$EXTRAS" ] || EXTRAS=$(cat "$root/share/gua/extras" 2>/dev/null) || :
    mkdir -p "$DESTDIR/"
    make_folder "$(dirname "$VENVDIR")"
    build_environment
    say "installing commands in $PREFIX/bin, units in $SYSTEMD_UNIT_DIR ..."
    put_files
    put_policy
    grep '/$' "$work/old-files" >>"$files" || :
    LC_ALL=C sort -u "$files" >"$stage/installed-files"
    [ -z "$was_started" ] || : >"$stage/timers-started"
    swap_in
    : >"$work/new-files"
    remove_files "$work/old-files" "$files"
    is_user || make_spool
    is_live || return 0
    # Under SELinux, what was renamed has the labels of where it was made.
    ! command -v restorecon >/dev/null || grep -v '/$' "$files" | xargs -d '\n' restorecon -R "$root" || :
    is_user || make_user
    is_user || open_history
    start_timers
    : >"$root/timers-started" # from now on, what is switched off was switched off by somebody
    take_sample
    tell_how_to_check
}

uninstall_all() {
    was_started='' left='' # the latter: timers of contrib
    check_machine
    begin
    if [ -e "$root/installed-files" ]; then
        ! is_live || stop_all
        say "removing $root and what it installed elsewhere ..."
        cp "$root/installed-files" "$files"
        remove_files "$files" /dev/null
        rm -rf "$stage"
        mv "$root" "$stage" # half of it would be taken for somebody else's
        rm -rf "$stage"
        ! is_live || $systemctl daemon-reload
        ! is_live || $systemctl reset-failed $services $container_units 2>/dev/null || :
        ! is_live || left=$($systemctl list-units --plain --no-legend --type=timer 'gua-*' | cut -d ' ' -f 1 | tr '\n' ' ')
        [ -z "$left" ] || say "these still run, and will fail; to stop them: $systemctl disable --now $left"
    else
        say "gua is not installed in $root"
    fi
    if [ -n "$PURGE" ]; then
        purge
    elif exists "$DESTDIR$history" && is_user; then
        say "kept the history in $history"
        say "to remove it too: make $target PURGE=1"
    elif exists "$DESTDIR$history"; then
        say "kept the history in $history and its owner, the user gua, and people's notes in $spool"
        say "to remove them too: sudo make $target PURGE=1"
    fi
}

# shellcheck source=checks.sh
. "$here/checks.sh"
# shellcheck source=environment.sh
. "$here/environment.sh"
# shellcheck source=machine.sh
. "$here/machine.sh"
set_paths
case $target in
install | install-user) install_all ;;
uninstall | uninstall-user) uninstall_all ;;
wheels) make_wheels ;;
*) refuse "unknown target $target" ;;
esac
