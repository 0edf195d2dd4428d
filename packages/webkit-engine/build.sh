#!/bin/sh
# Builds the engine: the library that the tool loads, the program that it starts, and the part inside the pages.
# Usage: build.sh [output folder]; CFLAGS and LDFLAGS are added to its own.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/dist}
cc=${CC:-cc}

version=$(pkg-config --modversion webkit2gtk-4.1)
flags="-std=gnu17 -O2 -g -fPIC -fvisibility=hidden -fstack-protector-strong -D_FORTIFY_SOURCE=2
  -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wpointer-arith -Wvla ${CFLAGS:-}"
link="-Wl,-z,relro,-z,now -Wl,--no-undefined ${LDFLAGS:-}"

mkdir -p "$out/page"
packages() { pkg-config "$1" json-glib-1.0 "$2" | tr '\n' ' '; }

# shellcheck disable=SC2086 # flags are several words
{
  $cc $flags -shared -DWEBKIT_VERSION="\"$version\"" -I"$here/../browser/include" \
    -o "$out/libbrowser_engine_webkit.so" "$here"/library/*.c $link -ldl
  $cc $flags $(packages --cflags webkit2gtk-4.1) -o "$out/browser-webkit-engine" \
    "$here"/engine/*.c "$here"/common/json.c $link $(packages --libs webkit2gtk-4.1) -lm
  $cc $flags -shared -DPAGE_FOLDER="\"$here/page\"" $(packages --cflags webkit2gtk-web-extension-4.1) \
    -o "$out/page/libbrowser_engine_webkit_page.so" \
    "$here"/page/*.c "$here"/common/json.c $link $(packages --libs webkit2gtk-web-extension-4.1) -ldl
}
echo "$out/libbrowser_engine_webkit.so (WebKitGTK $version)"
