#!/usr/bin/env bash
# Installs what the browser tests and `make screenshots` need on Debian: chromium, and pdftoppm for the printed page.
# Elsewhere, or without the right to install, it says so and ends well: the tests then skip with a sentence.
set -uo pipefail
if command -v chromium >/dev/null && command -v pdftoppm >/dev/null; then
    exit 0
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo -n"
fi
if command -v apt-get >/dev/null \
    && timeout 300 $as_root apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive timeout 600 $as_root apt-get install -y -qq --no-install-recommends chromium poppler-utils >/dev/null; then
    echo "Installed chromium for the browser tests."
else
    echo "chromium could not be installed; the browser tests will be skipped."
fi
exit 0
