#!/bin/sh
if [ "$1" = purge ]; then rm -f /etc/systemd/system/multi-user.target.wants/llm-node-exporter.service; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
