#!/bin/sh
# Builds the Debian package into dist/, for the Debian that it runs on. `make deb` calls it.
#
# Debian 12 has too old versions of trio, hiredis and structlog, and lacks trio-util. So the package
# contains its own Python environment, /usr/lib/disque, with the packages of requirements.txt. It runs
# on Debian's Python, of the minor version that the package was built with.
set -eu

cd "$(dirname "$0")/../.."
unset PYTHONPATH
place=/usr/lib/disque
build=build/deb/disque-trio # of this name, as dpkg-buildpackage wants it
root=$build/root
environment=$root$place
rm -rf build/deb
mkdir -p "$environment" dist

pip() { # ENVIRONMENT ARGUMENTS...
    python=$1/bin/python
    shift
    "$VENV/bin/python" -m pip --python "$python" --disable-pip-version-check "$@"
}
install_locked() { # ENVIRONMENT FILE: of the versions, and with the hashes, that it has
    /usr/bin/python3 -m venv --without-pip "$1"
    pip "$1" install --quiet --no-compile --no-warn-script-location --only-binary :all: \
        --require-hashes --requirement "tools/packaging/$2"
}
install_locked build/deb/compiler build-requirements.txt
DISQUE_TRIO_COMPILE=1 pip build/deb/compiler wheel --quiet --no-deps --no-build-isolation \
    --wheel-dir build/deb . packages/*/
install_locked "$environment" requirements.txt
pip "$environment" install --quiet --no-compile --no-warn-script-location --no-deps --no-index \
    build/deb/*.whl

# Fix the paths: it was built in another place.
rm "$environment"/bin/[Aa]ctivate* "$environment"/lib/python3*/site-packages/*.dist-info/direct_url.json
find "$environment/bin" "$environment/pyvenv.cfg" -type f -exec \
    sed -i "s|$PWD/$environment|$place|g" {} +
"$environment/bin/python" -m compileall -q --invalidation-mode unchecked-hash \
    -s "$PWD/$root" -p / "$environment/lib"

# What makes completions is not part of the package.
mkdir build/deb/manuals
cp -R "$("$VENV/bin/python" -c 'import shtab; print(*shtab.__path__)')" build/deb/manuals
PYTHONPATH=build/deb/manuals "$environment/bin/python" -m tools.manuals "$root/usr"
mkdir -p "$root/usr/bin" "$root/usr/share/doc/disque-trio/examples"
for page in "$root"/usr/share/man/man*/*; do
    name=$(basename "${page%.*}")
    ln -s "../lib/disque/bin/$name" "$root/usr/bin/$name"
done
mv "$environment/share/disque" "$root/usr/share/disque"
find "$environment" -type d -empty -delete
"$VENV/bin/cyclonedx-py" environment --output-reproducible \
    --output-file "$root/usr/share/doc/disque-trio/sbom.json" "$environment/bin/python"

cp -R config/debian "$build/debian"
for unit in disque.service disque.socket disque-outbox.service bananaq.service; do
    sed "s|/opt/disque/|$place/|" "config/$unit" >"$build/debian/disque-trio.$unit"
done
mv "$root/usr/share/disque/disque.logrotate" "$build/debian/disque-trio.logrotate"
mv "$root"/usr/share/disque/*.service "$root"/usr/share/disque/*.socket \
    "$root"/usr/share/disque/*.timer "$root/usr/share/doc/disque-trio/examples"
sed 's/^$/./; s/^/ /' LICENSE | tail -n +5 >>"$build/debian/copyright"
version=$("$environment/bin/python" -c 'from disque_trio.version import VERSION; print(VERSION)')
cat >"$build/debian/changelog" <<END
disque-trio ($version-1) unstable; urgency=medium

  * What is new is in CHANGELOG.md.

 -- disque-trio <disque-trio@localhost>  $(date -R -r CHANGELOG.md)
END
cp CHANGELOG.md "$root/usr/share/doc/disque-trio/"

DISQUE_PYTHON=$(/usr/bin/python3 -c '
import sys
major, minor = sys.version_info[:2]
print(f"python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1})")')
export DISQUE_PYTHON
(cd "$build" && dpkg-buildpackage --build=binary --no-sign >../log 2>&1) || {
    tail -n 30 build/deb/log >&2
    exit 1
}
rm -f dist/disque-trio_*.deb
mv build/deb/disque-trio_*.deb dist/
ls dist/disque-trio_*.deb
