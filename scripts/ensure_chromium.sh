#!/bin/sh
# Prints the path of a Chromium for the browser tests. Installs Debian's where that is possible without asking.
find_chromium() {
    for name in "$NPU_KIT_CHROMIUM" chromium chromium-browser google-chrome google-chrome-stable \
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" \
        "/Applications/Chromium.app/Contents/MacOS/Chromium"; do
        if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

find_chromium && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "No Chromium found: installing Debian's" >&2
    apt-get update -qq >&2 &&
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >&2 &&
        find_chromium && exit 0
fi
echo "The browser tests need Chromium or Chrome, and none was found." \
    "Install one (Debian: sudo apt-get install chromium fonts-dejavu-core)," \
    "or give its path: NPU_KIT_CHROMIUM=/path/to/chromium make test-browser" >&2
exit 1
