"""The texts that ``disque-server`` prints: its usage, and the install hints."""

USAGE = """\
Usage: disque-server [FILE | -] [--name value ...]
       disque-server --check-config FILE
       disque-server --install-hints
       disque-server -v | --version
       disque-server -h | --help

Starts a Disque node. FILE holds the settings, in YAML (.yaml, .yml) or in the syntax of
disque.conf; "-" reads the latter from standard input. Without FILE, the defaults apply.
Every setting can be given as an option and then overrides the file:

  disque-server
  disque-server config/disque.yaml
  disque-server config/disque.conf --port 7712 --loglevel verbose
  disque-server --port 7712 --bind 127.0.0.1 ::1 --maxmemory 2gb
  disque-server --processes 2

--check-config FILE reads the file, reports everything that is wrong with it, and starts nothing.

--install-hints shows the commands that install the node as a systemd service.

--debug, anywhere, shows the traceback of an error that nobody expected, which is otherwise a line.
The log always has it.

Exit status: 0 stopped by SIGTERM, SIGINT or SHUTDOWN; 1 it could not start, or failed, or something
is wrong with the file. With --daemonize yes: 0 once the node serves clients; 1 it could not start.
"""

# As in the units in config/, which are installed as share/disque.
PLACE = "/opt/disque"

INSTALL_HINTS = f"""\
# As root, in a checkout: Disque in a virtual environment of its own, as a systemd service.
# What this does and why: docs/systemd.md.
set -e
apt-get install -y python3-venv
python3 -m venv {PLACE}
{PLACE}/bin/pip install .

# Its user, and its configuration, which CONFIG REWRITE may write.
id disque >/dev/null 2>&1 || useradd --system --user-group --no-create-home \\
    --home-dir /var/lib/disque --shell /usr/sbin/nologin disque
install -d -o disque -g disque -m 0750 /etc/disque
test -e /etc/disque/disque.conf || install -o disque -g disque -m 0640 \\
    {PLACE}/share/disque/disque.conf /etc/disque/disque.conf
{PLACE}/bin/disque-server --check-config /etc/disque/disque.conf

install -m 0644 {PLACE}/share/disque/disque.service /etc/systemd/system/disque.service
install -m 0644 {PLACE}/share/disque/disque.socket /etc/systemd/system/disque.socket
systemctl daemon-reload
systemctl enable --now disque.socket disque.service

systemctl status disque.service
{PLACE}/bin/disque -h 127.0.0.1 -p 7711 ping
"""
"""The commands that make the node a systemd service, each step with a short explanation."""
