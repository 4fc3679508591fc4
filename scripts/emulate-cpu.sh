#!/usr/bin/env bash
# Test programs on a processor that this machine does not have: Sapphire Rapids (AVX-512 with bf16, AMX) in the emulator
# Bochs, which boots Linux with the programs in its first RAM disk.
#
#   scripts/emulate-cpu.sh PROGRAM[=FILTER]...     programs of build/release/tests; FILTER is GoogleTest's
#
# Prints what the programs print, some hundred times slower than they are here, and ends with status 1 when one of them
# fails. Wanted, none of it installed by scripts/setup.sh:
#   BOCHS          the emulator, 3.0 or later, configured with --with-nogui --enable-x86-64 --enable-cpu-level=6
#                  --enable-avx --enable-evex --enable-amx --enable-pci; its folder has bios/
#   EMULATED_LINUX a kernel: vmlinuz of Debian's package linux-image-cloud-amd64
#   packages       busybox-static cpio isolinux xorriso
# EMULATED_AMX=1 leaves AMX in: Linux takes it only from a processor with the register IA32_XFD, which Bochs 3.0 lacks and
# its later sources have. Those of November 2026 lose tiles where threads take turns, and programs end with an illegal
# instruction: in cpu/xsave.cc xsave_tilecfg_state() swaps a tile's rows and bytes, and xsave_tiledata_state() and
# xrstor_tiledata_state() go over 8 of its 16 rows. Mend both first.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/lib.sh"

[ $# -gt 0 ] || die "usage: scripts/emulate-cpu.sh PROGRAM[=FILTER]..."
bochs=${BOCHS:?the emulator: see the head of this script}
kernel=${EMULATED_LINUX:?a kernel: see the head of this script}
isolinux=/usr/lib/ISOLINUX/isolinux.bin
for file in "$bochs" "$kernel" "$isolinux" /usr/lib/syslinux/modules/bios/ldlinux.c32 /bin/busybox; do
  [ -e "$file" ] || die "$file is not there"
done
build=$root/build/release
work=$(mktemp -d)
emulator=
trap '[ -z "$emulator" ] || kill "$emulator" 2>/dev/null; rm -rf "$work"' EXIT

# The RAM disk: programs where they are here, since tests know the names of their data, and the libraries they ask for.
disk=$work/disk
mkdir -p "$disk"/{bin,proc,sys,dev,tmp,root} "$disk$build/tests" "$disk$root/tests" "$work/cd/isolinux"
cp /bin/busybox "$disk/bin/"
for name in sh mount mkdir grep sleep poweroff; do ln -s busybox "$disk/bin/$name"; done
cp -r "$root/tests/data" "$disk$root/tests/"
for word in rondo "$@"; do
  program=$build/tests/${word%%=*}
  [ "$word" != rondo ] || program=$build/rondo
  [ -x "$program" ] || die "$program is not built"
  [ -e "$disk$program" ] || strip -o "$disk$program" "$program"
  ldd "$program"
done | awk '/=> \// { print $3 }' | sort -u | while read -r library; do cp -L --parents "$library" "$disk"; done
cp -L --parents /lib64/ld-linux-x86-64.so.2 "$disk"
{
  echo '#!/bin/sh'
  echo 'mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp'
  echo 'mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm'
  echo 'exec >/dev/ttyS0 2>&1'
  echo "export HOME=/root RONDO_RUNS_DB=none; cd $root"
  # shellcheck disable=SC2016 # the emulated machine's shell expands it
  echo 'for f in avx512f avx512_bf16 amx_bf16; do grep -qw $f /proc/cpuinfo && echo "the processor has $f"; done'
  for word in "$@"; do
    program=${word%%=*}
    filter=${word#"$program"}
    printf '%s --gtest_color=no --gtest_filter="%s"; echo "%s ended with $?"\n' "$build/tests/$program" \
      "${filter#=}" "$program"
  done
  echo 'sleep 2; poweroff -f' # the serial line has words to send yet
} | sed 's/ --gtest_filter=""//' >"$disk/init"
chmod +x "$disk/init"
(cd "$disk" && find . | cpio -o -H newc --quiet) >"$work/cd/initrd.img"

# The kernel does without what it believes of fast string instructions: with them Bochs loses pages.
cp "$kernel" "$work/cd/vmlinuz"
cp "$isolinux" /usr/lib/syslinux/modules/bios/ldlinux.c32 "$work/cd/isolinux/"
cat >"$work/cd/isolinux/isolinux.cfg" <<'CONFIG'
DEFAULT linux
LABEL linux
 KERNEL /vmlinuz
 INITRD /initrd.img
 APPEND console=ttyS0 quiet mitigations=off nokaslr no5lvl nopcid nosmap clearcpuid=erms,fsrm,rep_good,invpcid,smap
CONFIG
xorriso -as mkisofs -quiet -o "$work/cd.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot \
  -boot-load-size 4 -boot-info-table "$work/cd" 2>/dev/null

# Instructions a second are those of the emulated clock, so that no test's patience ends sooner than on the real thing.
without=', exclude_features="amx,amx_bf16,amx_int8"'
[ -z "${EMULATED_AMX:-}" ] || without=
bios=$(dirname "$(readlink -f "$bochs")")/bios
cat >"$work/bochsrc" <<CONFIG
megs: 1536
romimage: file=$bios/BIOS-bochs-latest
vgaromimage: file=$bios/VGABIOS-lgpl/VGABIOS-lgpl-latest.bin
cpu: model=sapphire_rapids, count=1, ips=2200000000, reset_on_triple_fault=0$without
clock: sync=none, time0=1700000000
boot: cdrom
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path=$work/cd.iso, status=inserted
com1: enabled=1, mode=file, dev=$work/serial
log: $work/log
panic: action=fatal
display_library: nogui
CONFIG
: >"$work/serial"
"$bochs" -q -f "$work/bochsrc" <<<c >"$work/out" 2>&1 &
emulator=$!
tail -f --pid "$emulator" "$work/serial"
wait "$emulator" || true # a machine that is switched off counts as an error
emulator=
[ "$(grep -ac 'ended with 0' "$work/serial")" -eq $# ] || die "not all of the $# programs passed"
