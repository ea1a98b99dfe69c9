#!/bin/sh
# Sets up what a target of the Makefile needs, on a bare Debian: Debian packages, and a virtual
# environment for Python ($VENV, or $COMPILED). `make` calls it; it does nothing if all is there.
#
#   tools/setup.sh PURPOSE
#
#   run       to start a node: Python with its venv module
#   check     for ruff, mypy and the unit tests: Python packages only, below 250 MB
#   test      for all tests: redis-server, which the node is compared with; PostgreSQL, for the
#             outbox; Prometheus, for alerts; chromium, axe-core and nginx, for the console; Java,
#             for Spark; valgrind, which counts instructions; curl, jq, openssl and procps, which
#             pages of docs/ use; and what `compiled` needs
#   compiled  for the compiled build, which it makes and installs: a C compiler, Python's headers
#   profile, lock, django, stores, interop, deb, test-deb, wheels, audit: for the targets of these
#             names (`stores` is test-stores, and so on)
#
# It first says what it will install, how large that is, and how long it takes, by a network of 100
# Mbit/s. It installs Debian packages only as root. To anybody else it says what to ask an
# administrator for, all at once.
set -eu

cd "$(dirname "$0")/.."
what=${1:-run}
venv=${VENV:-.venv}
[ "$what" != compiled ] || venv=${COMPILED:-.venv-compiled}
python=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}

fail() {
    echo "setup: $1" >&2
    exit 1
}
missing=
need() { # PACKAGES CHECK...: the packages are missing if the check fails.
    packages=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $packages"
}
have() { command -v "$1"; }
has_postgresql() { have postgres || ls /usr/lib/postgresql/*/bin/postgres; }
# A compiler may be there without Python's headers.
has_headers_of() {
    include=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [ -e "$include/Python.h" ]
}
need_compiler() {
    need 'gcc libc6-dev' have cc
    need "libc6-dev $debian_python-dev" has_headers_of "${base:-$python}"
}

# What a wheel is made of, with checksums: git changes the times of files whose contents stay.
sources() {
    find config disque_trio tools/packaging pyproject.toml setup.py packages/*/setup.py \
        packages/bananaq/disque_bananaq -type f ! -name '*.pyc' -exec cksum {} + | LC_ALL=C sort
}
is_compiled_in() { sources | cmp -s - "$1/.installed-compiled"; }
is_compiled() { is_compiled_in "$venv"; }

# Debian's python3-dev and python3-venv may be those of an older Python than python3.12.
case ${python##*/} in
    python3.*) debian_python=${python##*/} ;;
    *) debian_python=python3 ;;
esac
# The programs of an environment name the place where it was made: in a checkout that was moved or
# copied, they are not found, or are those of the original.
was_moved() {
    case $venv in /*) return 1 ;; esac
    place=$(cd "$venv" && pwd -P)
    grep -qs '^command = ' "$venv/pyvenv.cfg" && ! grep -qF " $place" "$venv/pyvenv.cfg"
}

case $what in
    check) extras=check ;;
    interop | stores | test | test-deb | audit) extras=dev ;;
    deb | wheels) extras=release ;;
    profile) extras=dev,profile ;;
    lock) extras=lock ;;
    django) extras=django,test ;;
    compiled) extras=identity,pytest ;;
    *) extras=console,cron ;;
esac
# The other distributions of the tree. A node needs none.
compiling= # those with a compiled build
houses=
editable= # what pip is told about them
for file in packages/*/pyproject.toml; do
    case $what in run | lock) break ;; esac
    [ -e "$file" ] || break
    houses="$houses ${file%/*}"
    [ ! -e "${file%/*}/setup.py" ] || compiling="$compiling ${file%/*}"
    [ "$what" = compiled ] && [ -e "${file%/*}/setup.py" ] || editable="$editable -e ${file%/*}"
done
projects() { cat pyproject.toml packages/*/pyproject.toml 2>/dev/null || true; }
# A copy of the projects tells what is installed; `dev` includes all that `check` needs, and this
# all that `run` needs.
has_extras() { projects | cmp -s - "$venv/.installed-$1"; }
is_installed() {
    has_extras "$extras" && return
    case $what in
        check) has_extras dev ;;
        run) has_extras dev || has_extras check ;;
        *) false ;;
    esac
}

base=$venv/bin/python # empty: the environment is still to be made
if ! "$base" -c 'import pip' 2>/dev/null || was_moved; then base=; fi
if [ -z "$base" ] && [ -z "$python" ]; then
    missing='python3 python3-venv'
elif [ -z "$base" ]; then
    have "$python" >/dev/null || fail "there is no $python"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$python is too old: Python 3.11 or later is needed (make PYTHON=python3.13 ...)"
    # Debian has ensurepip in a package of its own: without it, an environment has no pip.
    need "$debian_python-venv" "$python" -c 'import ensurepip, venv'
fi
case $what in
    wheels) need_compiler ;;
    deb)
        need 'debhelper dpkg-dev' have dh
        need 'python3 python3-dev libc6-dev' has_headers_of /usr/bin/python3
        need 'gcc libc6-dev' have cc
        ;;
    test-deb)
        need mmdebstrap have mmdebstrap
        need systemd-container have systemd-nspawn
        need lintian have lintian
        ;;
    compiled) is_compiled || need_compiler ;;
    test)
        need 'redis-server redis-tools' have redis-server
        need curl have curl
        need jq have jq
        need openssl have openssl
        need procps have pgrep
        need postgresql has_postgresql
        need prometheus have promtool
        need chromium-headless-shell have chromium-headless-shell
        need chromium-driver have chromedriver
        need nginx have nginx
        # Spark needs Java 17 or later, which is the default in Debian 12 and 13.
        need default-jre-headless "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version
        need valgrind have valgrind
        need_compiler
        ;;
    interop)
        need redis-tools have redis-cli
        need 'php-cli php-redis' php -r 'new Redis(); pcntl_alarm(0);'
        need 'ruby ruby-redis' ruby -e 'require "redis"'
        need 'gcc libc6-dev' have cc
        need libhiredis-dev test -d /usr/include/hiredis
        need golang-go have go
        need golang-github-gomodule-redigo-dev \
            test -d /usr/share/gocode/src/github.com/gomodule/redigo
        need 'nodejs npm' have npm
        ;;
    stores)
        need 'nodejs npm' have npm
        ;;
esac

# plan TEXT...: a line of what will be installed.
planned=
plan() {
    [ -n "$planned" ] || echo "setup: this is installed now, once:" >&2
    planned=yes
    echo "setup:   $*" >&2
}
if [ "$what" = compiled ]; then
    is_compiled || plan "the compiled build into $venv: 250 MB, 5 minutes, most of it for the compiler"
elif [ -z "$base" ] || ! is_installed; then
    case $extras in
        dev*) size='2 GB, about 3 minutes' ;;
        check) size='240 MB, about a minute' ;;
        console,cron) size='50 MB, about 15 seconds' ;;
        *) size='up to 1 GB, about 2 minutes' ;;
    esac
    plan "Python packages into $venv: $size"
fi
if [ "$what" = test ]; then
    is_compiled_in "${COMPILED:-.venv-compiled}" ||
        plan "the compiled build into ${COMPILED:-.venv-compiled}: 250 MB, 5 minutes, during the first tests"
    [ -z "$missing" ] || plan "Debian packages, of 1 GB if all are missing, about a minute"
fi

if [ -n "$missing" ]; then
    missing=$(echo "$missing" | tr ' ' '\n' | sort -u | xargs)
    if [ "$(id -u)" != 0 ] || ! have apt-get >/dev/null; then
        echo "setup: Debian packages are missing. Ask an administrator to run:" >&2
        echo "  apt-get install --no-install-recommends $missing" >&2
        exit 1
    fi
    echo "setup: installing these Debian packages: $missing"
    # Some packages start a service when they are installed. The tests start their own.
    policy=${POLICY:-/usr/sbin/policy-rc.d}
    [ ! -e "$policy" ] || policy=
    if [ -n "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        trap 'exit 1' HUP INT TERM # after which dash runs no EXIT trap otherwise
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
    fi
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 || {
        apt-get update >/dev/null
        # shellcheck disable=SC2086
        apt-get install -y --no-install-recommends $missing >/dev/null
    }
    # Not only at the end: an exec below runs no trap.
    rm -f "$policy"
    trap - EXIT HUP INT TERM
    python=${python:-$(command -v python3)}
fi
[ -n "$base" ] || "$python" -m venv --clear "$venv"

pip="$venv/bin/python -m pip --disable-pip-version-check"
export DISQUE_TRIO_CHECKOUT=0 # the other distributions are named here

# wheel COMPILE DIRECTORY [PYTHON]: builds a wheel of the sources at the top, and of each other
# distribution that has a compiled build (COMPILE 1: compiled).
wheel() {
    # shellcheck disable=SC2086
    DISQUE_TRIO_COMPILE=$1 $pip ${3:+--python "$3"} wheel --quiet --no-deps --wheel-dir "$2" . $compiling
}

# Compiled wheels are kept in build/wheels, in a directory named after what they are made of.
KEPT_WHEELS=5
compiled_wheel() { # LIST-OF-SOURCES: prints the directory of the wheel, which it builds if needed.
    key=$({ cat "$1"; "$venv/bin/python" -VV; ${CC:-cc} --version; } | sha256sum | cut -c -32)
    kept=build/wheels/$key
    if [ ! -d "$kept" ]; then
        rm -rf "$kept.new"
        wheel 1 "$kept.new"
        cp build/compiled-by "$kept.new/compiled-by"
        mv "$kept.new" "$kept"
    fi
    touch "$kept"
    # shellcheck disable=SC2012
    ls -dt build/wheels/* | tail -n +$((KEPT_WHEELS + 1)) | xargs rm -rf
    echo "$kept"
}

if [ "$what" = compiled ]; then
    stamp=$venv/.installed-compiled
    mkdir -p build
    exec 9>build/.compiling
    have flock >/dev/null && flock 9 # another one may be compiling the same
    if ! is_compiled; then
        rm -f "$stamp"
        sources >"$venv/.built" # now: what is edited meanwhile may not be in the wheel
        kept=$(compiled_wheel "$venv/.built")
        $pip uninstall --quiet --yes disque-trio disque-bananaq
        # shellcheck disable=SC2086
        $pip install --quiet "$(echo "$kept"/disque_trio-*.whl)[$extras]" \
            $(ls "$kept"/*.whl | grep -v /disque_trio-) $editable
        cp "$kept/compiled-by" "$venv/compiled-by"
        mv "$venv/.built" "$stamp"
    fi
    exec 9>&-
    exec "$venv/bin/disque-server" --version
fi

if ! is_installed; then
    # shellcheck disable=SC2086
    $pip install --quiet -e ".[$extras]" $editable || fail "pip cannot install them: is there a network?"
    # Otherwise the first start would do it, or each if PYTHONDONTWRITEBYTECODE is set.
    # shellcheck disable=SC2086
    "$venv/bin/python" -m compileall -q disque_trio $houses
    projects >"$venv/.installed-$extras"
fi

# Those tests of the console that need axe-core, which is one file, are skipped without it.
if [ "$what" = test ] && [ ! -e "$venv/axe/node_modules/axe-core/axe.min.js" ]; then
    if command -v npm >/dev/null 2>&1; then
        npm install --silent --no-audit --no-fund --prefix "$venv/axe" axe-core@4.14.1 ||
            echo "setup: npm cannot install axe-core; tests of accessibility are skipped" >&2
    else
        echo "setup: there is no npm to install axe-core; tests of accessibility are skipped" >&2
    fi
fi

# A compiled wheel is for one minor version of Python. So there is one for each that is here.
if [ "$what" = wheels ]; then
    rm -f dist/*.whl dist/*.tar.gz
    rm -rf "$venv/wheels"
    "$venv/bin/python" -m build --sdist --outdir dist . >/dev/null
    wheel 0 dist
    for house in $houses; do
        "$venv/bin/python" -m build --outdir dist "$house" >/dev/null
    done
    for other in ${PYTHONS:-python3.11 python3.12 python3.13 python3.14}; do
        if "$other" -c '' 2>/dev/null && has_headers_of "$other"; then
            wheel 1 "$venv/wheels" "$(command -v "$other")"
        else
            echo "setup: no compiled wheel for $other: it is not here, or has no headers" >&2
        fi
    done
    # Names them after the oldest C library that they run with: PyPI takes no others.
    for built in "$venv"/wheels/*.whl; do
        [ ! -e "$built" ] || PATH="$venv/bin:$PATH" auditwheel repair --wheel-dir dist "$built"
    done
    exec ls dist/*.tar.gz dist/*.whl
fi

if [ "$what" = interop ]; then
    node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)' ||
        fail "node $(node --version) is too old: Node 20 or later is needed"
    stamp=examples/node/node_modules/.package-lock.json # npm writes it
    if [ ! -e "$stamp" ] || [ examples/node/package-lock.json -nt "$stamp" ]; then
        npm ci --prefix examples/node --no-audit --no-fund
    fi
fi

if [ "$what" = stores ]; then
    [ -e "$venv/azurite/node_modules/.bin/azurite-blob" ] ||
        npm install --silent --no-audit --no-fund --prefix "$venv/azurite" azurite@3.37.0
fi
