"""``disque-server --install-hints``: the commands that make the node a systemd service.

The places agree with the units in config/, which are installed as ``share/disque``.
"""

PLACE = "/opt/disque"

_HINTS = """\
# As root: Disque in a virtual environment of its own, as a systemd service.
# What this does and why: docs/systemd.md.
set -e
apt-get install -y python3-venv
python3 -m venv {place}
{place}/bin/pip install disque-trio

# Its user, and its configuration, which CONFIG REWRITE may write.
id disque >/dev/null 2>&1 || useradd --system --user-group --no-create-home \\
    --home-dir /var/lib/disque --shell /usr/sbin/nologin disque
install -d -o disque -g disque -m 0750 /etc/disque
test -e /etc/disque/disque.conf || install -o disque -g disque -m 0640 \\
    {place}/share/disque/disque.conf /etc/disque/disque.conf
{place}/bin/disque-server --check-config /etc/disque/disque.conf

install -m 0644 {place}/share/disque/disque.service /etc/systemd/system/disque.service
install -m 0644 {place}/share/disque/disque.socket /etc/systemd/system/disque.socket
systemctl daemon-reload
systemctl enable --now disque.socket disque.service

systemctl status disque.service
{place}/bin/disque -h 127.0.0.1 -p 7711 ping
"""


def install_hints() -> str:
    """A shell script with a word of explanation for each step."""
    return _HINTS.format(place=PLACE)
