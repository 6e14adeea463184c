#!/bin/sh
# become_init.sh ROOT CGROUP: PID 1 of a guest. Mounts what a container manager would, and becomes its systemd.
set -eu
root=$1
if [ $# -gt 1 ]; then
    echo 0 >"$2/cgroup.procs"
    exec unshare --cgroup -- sh "$0" "$root"
fi

# What the kernel has no namespaces for is read-only: a boot sets sysctls, and writable hardware would start udev.
mount -n -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -n --bind "$root/proc/sys" "$root/proc/sys"
mount -n -o remount,bind,ro "$root/proc/sys"
mount -n -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
mount -n -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$root/sys/fs/cgroup"

# The kernel's boot id is the host's, and the same at each boot of a guest.
boot_id=$root/proc/sys/kernel/random/boot_id
cat /proc/sys/kernel/random/uuid >/run/boot_id
mount -n --bind /run/boot_id "$boot_id"
mount -n -o remount,bind,ro "$boot_id"

mount -n -t tmpfs -o mode=755,nosuid tmpfs "$root/dev"
# Made, not copied: their modes differ from machine to machine.
while read -r node mode major minor; do
    mknod -m "$mode" "$root/dev/$node" c "$major" "$minor"
done <<'NODES'
null 666 1 3
zero 666 1 5
full 666 1 7
random 666 1 8
urandom 666 1 9
tty 666 5 0
fuse 600 10 229
NODES
mkdir "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -n -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"

cd "$root"
pivot_root . .
umount -n -l .
mount -n --make-rshared / # what systemd does itself outside of containers; LoadCredential= needs it

# Nor may the guest touch what it shares with the host: its clock, kernel modules and log, raw hardware.
exec env -i container=gua-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    setpriv --bounding-set "$GUEST_CAPABILITIES" -- /lib/systemd/systemd --system --unit=multi-user.target
