# Sourced by install.sh: what this machine has beside files: its systemd, the user gua, the history.
# shellcheck shell=sh
# shellcheck disable=SC2086 # $timers and $services are lists

make_user() {
    if command -v systemd-sysusers >/dev/null; then
        SYSTEMD_LOG_LEVEL=warning systemd-sysusers "$PREFIX/lib/sysusers.d/gua.conf"
    elif ! id gua >/dev/null 2>&1; then
        useradd --system --user-group --no-create-home --home-dir /var/lib/gua --shell /usr/sbin/nologin gua
    fi
}

make_spool() { # everybody may put a note there, nobody but root can list them or remove others'
    mkdir -p "$DESTDIR${spool%/*}"
    mkdir -p -m 1733 "$DESTDIR$spool"
    chmod 1733 "$DESTDIR$spool"
    ! is_live || chown root:root "$spool"
}

open_history() { # or close it; as gua, who in a folder of its own could lead root astray, and without root's terminal
    [ -n "$READERS" ] && [ -d "$history" ] || return 0
    others=rX
    [ "$READERS" = everyone ] || others=
    setsid --wait runuser -u gua -- chmod -R "u=rwX,g=rX,o=$others" "$history/" || say "some of $history is not gua's and stays as it is"
}

start_timers() {
    $systemctl daemon-reload
    for timer in $timers; do
        if [ -n "$was_started" ] && grep -q "/$timer\$" "$work/old-files"; then # what somebody switched off stays off
            ! $systemctl --quiet is-enabled "$timer" 2>/dev/null || $systemctl --quiet reenable "$timer"
            $systemctl try-restart "$timer" 2>/dev/null || :
        else
            $systemctl --quiet enable --now "$timer" || say "$timer was not started"
        fi
    done
}

take_sample() { # which also makes the data folder, with its mode
    if ! $systemctl --quiet is-active gua-sample.timer; then
        say "gua-sample.timer is off and stays so; to sample again: $systemctl unmask $timers && $systemctl enable --now $timers"
    elif say "taking a sample ..." && ! { $systemctl start gua-sample.service 2>/dev/null &&
        [ "$($systemctl show --property=ExecMainStatus --value gua-sample.service)" -eq 0 ]; }; then
        say "the sample failed; to find out why: gua doctor"
    fi
}

tell_how_to_check() {
    option=
    ! { is_user && [ -d /var/lib/gua ]; } || option=" --data-dir $history" # the machine's would be read otherwise
    say "$("$root/bin/gua" version) is installed. To check:"
    printf '  %s\n' "$systemctl list-timers 'gua-*'" "gua doctor$option" "gua-report --since 1h$option"
    if is_user; then
        say "It samples while you are logged in; to go on after logout: loginctl enable-linger"
        case :$PATH: in *":$PREFIX/bin:"*) ;; *) say "$PREFIX/bin is not on your PATH; log in again, or add it" ;; esac
    fi
    [ "$CONTAINERS" != yes ] || say "Names of containers are asked for as they turn up on cards; to see them: gua-containers --list"
    if ! is_user && [ -e "$readers_drop_in" ]; then
        say "Only the group gua can read the history; to let somebody in: sudo usermod -aG gua NAME"
    fi
}

stop_all() {
    say "stopping the timers ..."
    $systemctl stop $timers $services $container_units 2>/dev/null || :
    $systemctl reset-failed $services $container_units 2>/dev/null || : # or they would not be cleaned
    # What they leave behind: /run/gua, and when the last rollup was.
    $systemctl clean --what=runtime gua-sample.service 2>/dev/null || :
    $systemctl clean --what=state gua-rollup.timer 2>/dev/null || :
}

remove_history() { # and follow nothing
    data=$DESTDIR$history
    if [ -L "$data" ]; then
        say "removing the link $history only; the history is in $(readlink "$data")"
        rm -f "$data"
    elif [ -d "$data" ]; then
        say "removing the history in $history ..."
        if mountpoint -q "$data"; then
            find "$data" -mindepth 1 -delete
            say "$history itself stays, being a mount point"
        else
            rm -rf --one-file-system -- "$data"
        fi
    fi
}

remove_spool() { # with all that anybody put there, following nothing
    [ -d "$DESTDIR${spool%/*}" ] || return 0
    say "removing people's notes in $spool ..."
    rm -rf --one-file-system -- "$DESTDIR${spool%/*}"
}

purge() {
    for name in $configs; do rm -f "$DESTDIR$SYSCONFDIR/gua/$name"; done
    is_user || rm -f "$DESTDIR$readers_drop_in"
    is_user || rmdir "$DESTDIR$SYSCONFDIR/gua" "$DESTDIR${readers_drop_in%/*}" 2>/dev/null || :
    remove_history
    is_user || remove_spool
    if ! is_user && is_live && id gua >/dev/null 2>&1; then
        say "removing the user gua ..."
        userdel gua
        groupdel gua 2>/dev/null || : # userdel leaves it where it has members
    fi
}
