# gua.sh: says at login if you hold a card without work, and since when. Silent if not, if nobody knows, or if what the
# sampler wrote is older than five minutes, not whole or odd. For sh, bash, dash, zsh and busybox, interactive only.
# It starts no program but head, with a limit of bytes and time: whoever can write the file, the sampler's user, is not to
# hold up logins; and `id` in a shell that does not know its own uid.
#
# To install: let the sampler write the file, with its other options if there are any,
#     echo 'GUA_SAMPLE_OPTIONS=--held-file /run/gua/held' | sudo tee -a /etc/gua/gua-sample.env
#     sudo install -m 644 contrib/profile.d/gua.sh /etc/profile.d/gua.sh
# Everybody can read that file: uids, pids and names of commands that hold a card without work.

_gua_tell_held() {
    _gua_file=${GUA_HELD_FILE:-/run/gua/held}
    if [ ! -f "$_gua_file" ] || [ -h "$_gua_file" ] || [ ! -r "$_gua_file" ]; then return 0; fi
    if [ -n "${BASH_VERSION-}${ZSH_VERSION-}" ]; then _gua_uid=$UID; else _gua_uid=$(id -u); fi
    IFS=' .' read -r _gua_now _gua_rest </proc/uptime || return 0
    IFS=' ' read -r _gua_boot </proc/sys/kernel/random/boot_id || return 0
    timeout 2 head -c 65536 "$_gua_file" | {
        # Written when, in seconds since the boot, and in which boot: a clock that is set makes no difference.
        IFS=' ' read -r _gua_name _gua_kind _gua_version _gua_then _gua_rest || return 0
        if [ "$_gua_name $_gua_kind $_gua_version $_gua_rest" != "gua held 1 $_gua_boot" ]; then return 0; fi
        case $_gua_then in '' | *[!0-9]* | 0?* | ??????????*) return 0 ;; esac
        _gua_age=$((_gua_now - _gua_then))
        if [ "$_gua_age" -lt 0 ] || [ "$_gua_age" -gt 300 ]; then return 0; fi
        _gua_lines=0 _gua_shown=0
        while IFS=' ' read -r _gua_whose _gua_gpu _gua_since _gua_gib _gua_pid _gua_command _gua_text; do
            _gua_lines=$((_gua_lines + 1))
            if [ "$_gua_lines" -gt 200 ]; then return 0; fi
            if [ "$_gua_whose" != "$_gua_uid" ] || [ ${#_gua_text} -gt 200 ]; then continue; fi
            # Nothing is shown that could be more than a sentence.
            case $_gua_text in *[!A-Za-z0-9\ .,:_+?\(\)-]* | '') continue ;; esac
            _gua_shown=$((_gua_shown + 1))
            if [ "$_gua_shown" -gt 5 ]; then
                printf 'gua: and more: gua-report --who me\n'
                return 0
            fi
            printf 'gua: %s\n' "$_gua_text"
        done
    }
    return 0
}

case $- in
    *i*) if [ -t 1 ]; then _gua_tell_held 2>/dev/null; fi ;;
esac
unset -f _gua_tell_held
unset _gua_file _gua_uid _gua_now _gua_rest _gua_boot _gua_name _gua_kind _gua_version _gua_then _gua_age _gua_lines
unset _gua_shown _gua_whose _gua_gpu _gua_since _gua_gib _gua_pid _gua_command _gua_text
