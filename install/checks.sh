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

check_interval() { # and find out what it is in OnCalendar=, which can tell what divides an hour
    [ -n "$INTERVAL" ] || return 0
    number=${INTERVAL%[smh]}
    case $number in '' | 0* | *[!0-9]* | ?????*) number=0 ;; esac
    case $INTERVAL in
    *s) seconds=$number ;;
    *m) seconds=$((number * 60)) ;;
    *h) seconds=$((number * 3600)) ;;
    *) seconds=0 ;;
    esac
    { [ "$seconds" -ge 5 ] && [ "$seconds" -le 3600 ]; } || refuse \
        "bad INTERVAL=$INTERVAL: expected 5s to 1h in whole seconds, such as 15s, 90s or 2m"
    shorter=$seconds longer=$seconds
    while [ $((3600 % shorter)) -ne 0 ]; do shorter=$((shorter - 1)); done
    while [ $((3600 % longer)) -ne 0 ]; do longer=$((longer + 1)); done
    [ "$shorter" -eq "$longer" ] || refuse \
        "bad INTERVAL=$INTERVAL: an hour is not a multiple of it; the next that work are ${shorter}s and ${longer}s"
    calendar=$(spell_calendar "$seconds")
}

spell_calendar() { # SECONDS, for sed: one line, or one for each run until a run is on the full minute again
    if [ "$1" -lt 60 ] && [ $((60 % $1)) -eq 0 ]; then
        say "*:*:0/$1"
    elif [ "$1" -eq 3600 ]; then
        say '*:0'
    else
        period=$1
        while [ $((period % 60)) -ne 0 ]; do period=$((period + $1)); done
        lines="*:0/$((period / 60))" at=$1
        while [ "$at" -lt "$period" ]; do
            lines="$lines\\nOnCalendar=*:$((at / 60))/$((period / 60)):$((at % 60))"
            at=$((at + $1))
        done
        printf '%s\n' "$lines"
    fi
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
    redis | redis,parquet | parquet,redis) ;; # redis is always there, unless none is asked for
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
