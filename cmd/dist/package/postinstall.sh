#!/bin/sh
# The first installation switches the service on; afterwards it runs if it is on. Debian's packages get the version before as
# $2, RPM's the number of installed versions as $1.
set -e
command -v systemctl >/dev/null || exit 0
if [ "$1" = configure ] && [ -z "$2" ] || [ "$1" = 1 ]; then systemctl enable llm-node-exporter.service; fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if systemctl --quiet is-enabled llm-node-exporter.service; then systemctl restart llm-node-exporter.service; fi
