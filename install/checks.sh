# Sourced by install.sh: what can go wrong is found out before anything is touched, and said in one line.
# shellcheck shell=sh

check_machine() {
    if is_user; then
        [ "$(id -u)" -ne 0 ] || refuse "make $target is for people, and this is root; run: make ${target%-user}"
        ! is_live || systemctl --user show-environment >/dev/null 2>&1 || refuse \
            "your systemd does not answer, as after su or sudo; log in (ssh $(id -un 2>/dev/null)@localhost) and run make $target there"
    elif is_live; then
        other=', or make install-user without root'
        [ "$target" = install ] || other=
        [ "$(id -u)" -eq 0 ] || refuse "make $target takes root; run: sudo make $target$other"
        { [ -d /run/systemd/system ] && command -v systemctl >/dev/null; } || refuse \
            "this machine is not run by systemd, whose timers gua needs; to build a package, give DESTDIR"
    fi
    for path in "$PREFIX" "$VENVDIR" "${SYSCONFDIR:-/etc}" "$SYSTEMD_UNIT_DIR" "$history"; do
        case $path in
        # A virtual environment can't be below a colon; the others would mean something in a unit.
        *[\'\"\\\$\`%:]* | *[[:cntrl:]]*) refuse "bad path $path: quotes, backslashes, colons, \$ and % won't do" ;;
        /*) ;;
        *) refuse "bad path '$path': expected one that begins with /" ;;
        esac
    done
    [ ! -L "$root" ] || refuse "VENVDIR=$VENVDIR is a link; name the folder itself: VENVDIR=$(readlink -f "$root")"
}

check_install() {
    case $READERS in '' | everyone | group) ;; *) refuse "bad READERS=$READERS: expected everyone or group" ;; esac
    check_containers
    check_interval
    check_extras
    [ -z "$WHEELS" ] || [ -d "$WHEELS" ] || refuse "there is no folder $WHEELS; fill one with: make wheels WHEELS=$WHEELS"
    check_python
    is_user || case $VENVDIR in
    /home/* | /root/* | /run/user/*) refuse "VENVDIR=$VENVDIR won't do: home folders are out of the service's sight" ;;
    esac
    ! exists "$root" || [ -e "$root/installed-files" ] || refuse \
        "$root is there already and not gua's; move it away, or choose another VENVDIR"
    for name in $commands; do
        link=$DESTDIR$PREFIX/bin/$name
        ! exists "$link" || [ "$(readlink "$link")" = "$VENVDIR/bin/$name" ] || refuse \
            "$link is there already and not from $VENVDIR; move it away, or choose another PREFIX"
    done
    for path in "$PREFIX/bin" "$VENVDIR.new" "$SYSTEMD_UNIT_DIR" ${SYSCONFDIR:+"$SYSCONFDIR/gua"}; do
        is_writable "$DESTDIR$path" || refuse "$DESTDIR$path can't be written"
    done
    ! is_live || check_unit_folder
    ! is_live || is_user || check_user
}

check_interval() { # and find out what it is in OnCalendar=, which can tell what divides a minute or an hour
    case $INTERVAL in
    '') ;;
    5s | 6s | 10s | 12s | 15s | 20s | 30s) calendar="*:*:0/${INTERVAL%s}" ;;
    1m | 2m | 3m | 4m | 5m) calendar="*:0/${INTERVAL%m}" ;;
    *) refuse "bad INTERVAL=$INTERVAL: expected 5s, 6s, 10s, 12s, 15s, 20s, 30s or 1m to 5m" ;;
    esac
}

check_containers() { # a choice that stays until another is made
    case $CONTAINERS in
    no) ;;
    yes) ! is_user || refuse "CONTAINERS=yes takes root, who may ask Docker; run: sudo make install CONTAINERS=yes" ;;
    '') ! grep -qs '/gua-containers\.path$' "$root/installed-files" || CONTAINERS=yes ;;
    *) refuse "bad CONTAINERS=$CONTAINERS: expected yes or no" ;;
    esac
}

check_extras() {
    case $EXTRAS in
    '' | none | parquet | fleet | fleet,parquet | parquet,fleet) ;;
    redis | redis,parquet | parquet,redis) ;; # of older versions: Redis takes no package any more
    *) refuse "bad EXTRAS=$EXTRAS: expected none, parquet, fleet or parquet,fleet" ;;
    esac
}

check_user() { # one of that name who is a person would be made the owner of everything, and removed by PURGE
    home=$(getent passwd gua | cut -d: -f6) || :
    [ -z "$home" ] || [ "$home" = /var/lib/gua ] || refuse \
        "there is a user gua already, with the home folder $home; the service needs that name for itself"
}

check_python() {
    command -v "$PYTHON" >/dev/null || refuse \
        "there is no $PYTHON; name a Python 3.10 or newer with: make $target PYTHON=/usr/bin/python3"
    "$PYTHON" "$here/check_python.py" "$target" "$CONTAINERS" || exit 1
}

check_unit_folder() {
    default=/etc/systemd/system
    ! is_user || default=$HOME/.config/systemd/user
    case " /usr/local/lib/systemd/system /usr/lib/systemd/system $default $($systemctl show --property=UnitPath --value) " in
    *" $SYSTEMD_UNIT_DIR "*) ;;
    *) refuse "systemd does not look for units in $SYSTEMD_UNIT_DIR; give SYSTEMD_UNIT_DIR=$default" ;;
    esac
}

is_writable() { # or can be made
    if exists "$1"; then [ -w "$1" ]; else is_writable "$(dirname "$1")"; fi
}
