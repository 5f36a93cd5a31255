#!/bin/sh
# Debian's packages leave the service on until they are purged, like its settings.
set -e
command -v systemctl >/dev/null || exit 0
if [ "$1" = 0 ]; then systemctl disable llm-node-exporter.service; fi
if [ "$1" = 0 ] || [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl stop llm-node-exporter.service; fi
