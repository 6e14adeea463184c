# Sourced by install.sh: the virtual environment. It is built beside the one in use, and takes its place when complete.
# shellcheck shell=sh
# shellcheck disable=SC2086 # $services is a list, $systemctl may be two words

build_environment() {
    "$PYTHON" -I -m venv --prompt gua "$stage" || refuse "the virtual environment could not be made; nothing was changed"
    copy_source
    run_pip install --no-compile ${WHEELS:+--no-index} ${WHEELS:+"--find-links=$WHEELS"} "$(source_with_extras)" || refuse \
        "pip failed; nothing was changed"
    # Nothing but the next make install is to change what is in there.
    "$stage/bin/python" -I -m pip uninstall -qq --yes pip setuptools
    # No file may name the folder it was built in, or from.
    find "$stage/bin" "$stage/pyvenv.cfg" -type f -exec sed -i "$(substitution "$stage" "$VENVDIR")" {} +
    # Where that folder has blanks or a long name, pip had to put a shell before Python.
    case $VENVDIR in
    *' '*) ;;
    *) for name in $commands; do sed -i -e '1{/^#!\/bin\/sh$/{N;N;s|.*|#!'"$VENVDIR"'/bin/python|;}}' "$stage/bin/$name"; done ;;
    esac
    rm -f "$stage"/lib/python*/site-packages/gua-*.dist-info/direct_url.json
    # The service can't write bytecode itself. Nobody imports the tests of packages, half of all files.
    "$stage/bin/python" -I -m compileall -q -j 0 -x 'site-packages/.*/tests/' -s "$stage" -p "$VENVDIR" "$stage/lib"
    "$stage/bin/python" -I -c 'import gua_sample.cli, gua_report.commands.report, pandas, tabulate, pynvml' || refuse \
        "what was built does not work on this machine; nothing was changed"
    mkdir -p "$stage/share/doc/gua" "$stage/share/gua"
    say "$EXTRAS" >"$stage/share/gua/extras"
    cp -R "$source/contrib" "$stage/share/gua/contrib" # whoever has no checkout any more needs it, too
    chmod -R u=rwX,go=rX "$stage/share/gua/contrib"
    (cd "$source" && install -m 0644 docs/*.md README.md CHANGELOG.md LICENSE "$stage/share/doc/gua")
}

copy_source() { # building in the checkout would leave root's files there
    mkdir "$work/source"
    (cd "$source" && cp -R gua_sample gua_report pyproject.toml README.md CHANGELOG.md LICENSE "$work/source")
    find "$work/source" -name '*.py' -exec sed -i "$(substitution /etc/gua/ "${SYSCONFDIR:-/etc}/gua/")" {} +
    cp "$source/constraints.txt" "$work"
}

source_with_extras() { # redis is small, and the configuration may ask for it at any time
    case $EXTRAS in none) say "$work/source" ;; *) say "$work/source[redis${EXTRAS:+,$EXTRAS}]" ;; esac
}

run_pip() { # with the versions that were tested, and without a cache: its folder may be somebody else's
    verb=$1 && shift
    env -u PYTHONPATH -u PYTHONHOME PIP_CONSTRAINT="$work/constraints.txt" PIP_BUILD_CONSTRAINT="$work/constraints.txt" \
        PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore PIP_USER=0 \
        "$stage/bin/python" -I -m pip "$verb" --quiet --no-cache-dir "$@"
}

swap_in() {
    # A run that began with the old version may end with it.
    ! is_live || for _ in 1 2 3 4 5 6 7 8 9 10; do
        $systemctl is-active $services | grep -q activating || break
        sleep 1
    done
    if exists "$root" && ! exchange "$stage" "$root"; then
        rm -rf "$root.old"
        mv "$root" "$root.old"
    fi
    exists "$root" || mv "$stage" "$root"
    rm -rf "$root.old" "$stage"
}

exchange() { # at once, so that there is no moment without either; not every file system can
    "$PYTHON" -I -c 'import ctypes, os, sys
here, there = map(os.fsencode, sys.argv[1:])
sys.exit(ctypes.CDLL(None).renameat2(-100, here, -100, there, 2) != 0)' "$1" "$2" 2>/dev/null # AT_FDCWD, RENAME_EXCHANGE
}

restore() { # what was there before, should the swap have been cut short
    exists "$root" || ! exists "$root.old" || mv "$root.old" "$root"
}

make_wheels() {
    [ -n "$WHEELS" ] || refuse "say which folder is to be filled: make wheels WHEELS=DIR"
    check_extras
    check_python
    begin
    root=$work/none stage=$work/venv
    say "filling $WHEELS ..."
    mkdir -p "$WHEELS"
    "$PYTHON" -I -m venv "$stage"
    copy_source
    run_pip wheel --wheel-dir "$WHEELS" "$(source_with_extras)" setuptools
    rm -f "$WHEELS"/gua-[0-9]*.whl # make install builds that from the tree
}
