#!/bin/busybox sh
# The only process of a guest that migrates (moving.py). It checks what the record says that an earlier guest
# has written to /dev/vda, and then writes and checks for ever. All it says goes out by the port: "verified",
# "acked BLOCK VERSION" for each acknowledged write, and "ended CODE" when the checker has met an error.
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
for module in @MODULES@; do insmod "/modules/$module" || echo "guest: cannot load $module"; done
until [ -b /dev/vda ] && [ -c /dev/vport0p1 ]; do sleep 0.1; done
exec >/dev/vport0p1 2>&1

if [ -e /record ]; then
  block_checker verify --device=/dev/vda --record=/record >/dev/console && echo verified
fi
block_checker write --tell --device=/dev/vda --record=/record --threads=4 --blocks=64 --flush-every=16
echo "ended $?"
sleep 100000
