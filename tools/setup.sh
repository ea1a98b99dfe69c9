#!/bin/sh
# Sets up what `make run` and `make test` need on a bare Debian: the Python
# virtual environment and, for the tests, redis-server (a foreign program that
# the interop tests and the benchmarks run beside the node), PostgreSQL (for the
# outbox; tests that need it are skipped without it), Prometheus (likewise, for
# alerts), chromium (likewise, for the pages of the console), a Java runtime (Spark
# is a Java program), and valgrind and a C compiler (instructions are counted and the
# compiled form is tested as well).
#
#   tools/setup.sh run|check|test|stores|django|interop|profile|compiled|wheels
#
# `check` is what ruff, mypy and the unit tests need: Python packages only.
# `interop` is what the examples in other languages need besides. `stores` is what
# `make stores` needs besides: Azurite (of npm) and a Hadoop, in $VENV.
#
# It installs Debian packages only when they are missing and only as root;
# otherwise it says which command the operator has to run.
set -eu

cd "$(dirname "$0")/.."
what=${1:-run}
venv=${VENV:-.venv}
[ "$what" != compiled ] || venv=${COMPILED:-.venv-compiled}
python=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}

apt_install() {
    if [ "$(id -u)" != 0 ]; then
        echo "setup: missing Debian packages, please run: sudo apt-get install $*" >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y --no-install-recommends "$@" >/dev/null 2>&1 || {
        apt-get update >/dev/null
        apt-get install -y --no-install-recommends "$@" >/dev/null
    }
}

if [ -z "$python" ]; then
    apt_install python3 python3-venv
    python=$(command -v python3)
fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "setup: $python is too old, Python 3.11 or later is needed (set PYTHON=...)" >&2
    exit 1
}
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    # Debian splits ensurepip from python3: without it a venv has no pip.
    "$python" -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv
    "$python" -m venv --clear "$venv"
fi

pip="$venv/bin/python -m pip --disable-pip-version-check"

# A compiler can be there without Python's headers.
need_compiler() {
    command -v cc >/dev/null || apt_install gcc libc6-dev
    include=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [ -e "$include/Python.h" ] || apt_install libc6-dev python3-dev
}

# wheel FORM DIRECTORY: builds one from the sources as they are now.
wheel() {
    DISQUE_TRIO_COMPILE=$1 $pip wheel --quiet --no-deps --wheel-dir "$2" .
}

if [ "$what" = wheels ]; then
    need_compiler
    rm -rf dist
    wheel 0 dist
    wheel 1 dist
    exec ls dist/*-py3-none-any.whl dist/*-cp3*.whl
fi

if [ "$what" = compiled ]; then
    stamp=$venv/.installed-compiled
    newer=new
    if [ -e "$stamp" ]; then
        newer=$(find disque_trio setup.py pyproject.toml tools/packaging -newer "$stamp" \
            \( -name '*.py' -o -name '*.[ch]' -o -name '*.toml' \) -print)
    fi
    if [ -n "$newer" ]; then
        rm -f "$stamp"
        need_compiler
        touch "$venv/.built"
        rm -rf "$venv/wheel"
        wheel 1 "$venv/wheel"
        $pip uninstall --quiet --yes disque-trio
        $pip install --quiet "$(echo "$venv"/wheel/*.whl)[console,cron,redis,test]"
        cp build/compiled-by "$venv/compiled-by"
        # What was edited meanwhile is not in the wheel.
        mv "$venv/.built" "$stamp"
    fi
    exec "$venv/bin/disque-server" --version
fi

# One stamp a purpose, renewed when pyproject.toml changes.
case $what in
    check | interop | stores) stamp=$venv/.installed-test ;;
    *) stamp=$venv/.installed-$what ;;
esac
if [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
    case $what in
        check | interop | stores | test) extras='dev' ;;
        profile) extras='dev,profile' ;;
        django) extras='django,test' ;;
        *) extras='console,cron' ;;
    esac
    $pip install --quiet -e ".[$extras]"
    # Or the first start would, and each where PYTHONDONTWRITEBYTECODE is set.
    "$venv/bin/python" -m compileall -q disque_trio
    touch "$stamp"
fi

servers=
command -v redis-server >/dev/null 2>&1 || servers="redis-server redis-tools"
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || servers="$servers postgresql"
command -v promtool >/dev/null 2>&1 || servers="$servers prometheus"
command -v chromedriver >/dev/null 2>&1 || servers="$servers chromium chromium-driver"
if [ "$what" = test ] && [ -n "$servers" ]; then
    # The packages start system services; the tests start their own processes.
    if [ "$(id -u)" = 0 ] && [ ! -e /usr/sbin/policy-rc.d ]; then
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
        chmod +x /usr/sbin/policy-rc.d
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    # shellcheck disable=SC2086
    apt_install $servers
fi

# Spark runs on Java 17 or later, which is what Debian 12 and 13 have as their default.
if [ "$what" = test ] && ! "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version >/dev/null 2>&1; then
    apt_install default-jre-headless
fi

if [ "$what" = test ]; then
    command -v valgrind >/dev/null || apt_install valgrind
    need_compiler
fi

if [ "$what" = interop ]; then
    command -v redis-cli >/dev/null || apt_install redis-tools
    php -r 'new Redis(); pcntl_alarm(0);' >/dev/null 2>&1 || apt_install php-cli php-redis
    ruby -e 'require "redis"' 2>/dev/null || apt_install ruby ruby-redis
    command -v cc >/dev/null || apt_install gcc libc6-dev
    [ -d /usr/include/hiredis ] || apt_install libhiredis-dev
    command -v go >/dev/null || apt_install golang-go
    [ -d /usr/share/gocode/src/github.com/gomodule/redigo ] ||
        apt_install golang-github-gomodule-redigo-dev
    command -v npm >/dev/null || apt_install nodejs npm
    node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)' || {
        echo "setup: node $(node --version) is too old, Node 20 or later is needed" >&2
        exit 1
    }
    stamp=examples/node/node_modules/.package-lock.json # npm writes it
    if [ ! -e "$stamp" ] || [ examples/node/package-lock.json -nt "$stamp" ]; then
        npm ci --prefix examples/node --no-audit --no-fund
    fi
fi

# An old PySpark has the jars of a NameNode and a DataNode; later ones have those of clients only.
if [ "$what" = stores ]; then
    command -v npm >/dev/null || apt_install nodejs npm
    java -version >/dev/null 2>&1 || apt_install default-jre-headless
    [ -e "$venv/azurite/node_modules/.bin/azurite-blob" ] ||
        npm install --silent --no-audit --no-fund --prefix "$venv/azurite" azurite@3.37.0
    if [ ! -d "$venv/hadoop" ]; then
        rm -rf "$venv/hadoop.new"
        mkdir -p "$venv/hadoop.new"
        $pip download --quiet --no-deps --no-binary pyspark --no-build-isolation \
            --dest "$venv/hadoop.new" pyspark==2.4.8
        tar -xzf "$venv"/hadoop.new/pyspark-*.tar.gz -C "$venv/hadoop.new" \
            --strip-components=3 --wildcards '*/deps/jars/*.jar'
        rm "$venv"/hadoop.new/pyspark-*.tar.gz
        mv "$venv/hadoop.new" "$venv/hadoop"
    fi
fi
