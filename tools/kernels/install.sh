#!/usr/bin/env bash
# The compilers and emulators that `make kernels` and `make wheels` use; what cannot be installed is skipped there with a sentence.
set -u
wanted="clang gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user wine64"
command -v clang >/dev/null && command -v qemu-aarch64 >/dev/null && command -v aarch64-linux-gnu-gcc >/dev/null && [ -x /usr/lib/wine/wine64 ] && exit 0
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted) >/dev/null 2>&1 ||
    echo "Not all of these could be installed, and kernels are tested without them: $wanted."
else
  echo "Only root with apt-get installs these, and kernels are tested without them: $wanted."
fi
exit 0
