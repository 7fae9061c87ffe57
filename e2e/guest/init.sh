#!/bin/busybox sh
# The guest's first process, in its initramfs. It loads the modules that reach the machine's own files, makes
# those its root, with a memory file system above them so that nothing of the machine can change, and goes on
# with agent.sh there. image.py fills in @…@.
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
for module in @MODULES@; do insmod "/modules/$module" || echo "guest: cannot load $module"; done

mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 machine /machine || poweroff -f
mount -t tmpfs -o size=75% memory /memory
mkdir -p /memory/upper /memory/work
mount -t overlay -o lowerdir=/machine,upperdir=/memory/upper,workdir=/memory/work root /root || poweroff -f

# From now on the kernel finds its modules itself.
for folder in proc sys dev run; do mkdir -p "/root/$folder"; done
mkdir -p /root/lib/modules
ln -sfn "@MODULES_FOLDER@" "/root/lib/modules/$(uname -r)"
ln -sf /bin/busybox /root/sbin/modprobe
mount -t tmpfs run /root/run
mount --move /proc /root/proc
mount --move /sys /root/sys
mount --move /dev /root/dev
exec switch_root /root /bin/bash "@AGENT@"
