#!/usr/bin/env bash
# Makes the executable and its data, once, before the first launch. MODEL_GATEWAY_SOURCE is a checkout, or the address
# of one that git can clone; MODEL_GATEWAY_COMMIT pins it.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
[ -e "$here/src" ] || git clone -q "${MODEL_GATEWAY_SOURCE:?a checkout of the project, or its address for git}" "$here/src"
cd "$here/src"
[ -z "${MODEL_GATEWAY_COMMIT:-}" ] || git checkout -q "$MODEL_GATEWAY_COMMIT"
[ -x node_modules/.bin/bun ] || npm ci --no-audit --no-fund
mkdir -p dist
node_modules/.bin/bun scripts/build-gateway.ts --outfile dist/model-gateway
[ -d "$here/data" ] || node_modules/.bin/bun bench/board/prepare.ts "$here"
