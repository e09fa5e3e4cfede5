#!/bin/sh
# Installs what pip cannot: a Chromium, a virtual display, fonts. What is there already is left alone.
#
#   sh tools/setup-system.sh VENV/bin
set -eu
bin=$1

find_chromium() {
    "$bin/python" -c 'from webgym_workers.browser.find import find_chromium; print(find_chromium())' 2>/dev/null
}

has_font() {
    # A machine without fontconfig has no fonts that Chromium would find.
    command -v fc-list >/dev/null && [ -n "$(fc-list ":lang=$1" family | head -n 1)" ]
}

missing=""
case $(uname -s) in
Linux)
    # Ubuntu's package of that name only points to a snap, which containers cannot run; Playwright serves there.
    . /etc/os-release 2>/dev/null || ID=unknown
    find_chromium >/dev/null || [ "${ID:-}" = ubuntu ] || missing="$missing chromium"
    command -v Xvfb >/dev/null || missing="$missing xvfb"
    has_font en || missing="$missing fonts-liberation"
    has_font zh || missing="$missing fonts-noto-cjk"
    command -v fc-list >/dev/null && fc-list | grep -qi emoji || missing="$missing fonts-noto-color-emoji"
    ;;
esac

if [ -n "$missing" ]; then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        echo "installing:$missing"
        export DEBIAN_FRONTEND=noninteractive
        # shellcheck disable=SC2086  # words are wanted
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >/dev/null ||
            echo "webgym: apt-get could not install:$missing" >&2
    else
        echo "webgym: some pages may look wrong or not run; as root: apt-get install$missing" >&2
    fi
fi

if ! find_chromium >/dev/null; then
    echo "installing Playwright's Chromium"
    "$bin/playwright" install --with-deps chromium || "$bin/playwright" install chromium || true
fi

if ! path=$(find_chromium); then
    echo "webgym: no Chromium on this machine: install one, or set WEBGYM_CHROMIUM to its program" >&2
    exit 1
fi
echo "browser: $path"
