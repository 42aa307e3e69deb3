#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Turn the target kernel's struct layouts into assertions about ours.

A module that disagrees with the kernel about one member corrupts memory
silently: modversions only cover what an exported symbol reaches, and the
headers, the configuration and two compilers (the C compiler and bindgen's
libclang) all have a say.  The type information (BTF) in the target's own
vmlinux and modules is the authority.  This script reads it with pahole and
writes two source files which Kbuild compiles into the module:

  - C: a _Static_assert for the size of each struct, and for the offset and
    size of each member, bit-fields excepted;
  - Rust: the same for each member that the bindgen output names, and an
    error for a member that the headers have and the target does not.

A difference therefore ends the build, in a message that names the member.
"""

import argparse
import lzma
import gzip
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Where each struct's layout is decided: the target's module (its path below
# kernel/ and the option that makes it a module), or the kernel image.
OWNERS = {
    ("drivers/vhost/vhost", "CONFIG_VHOST"): [
        "vhost_dev", "vhost_virtqueue", "vhost_worker", "vhost_work",
        "vhost_poll", "vhost_vring_call", "vhost_log", "vhost_msg_node",
    ],
    ("net/vmw_vsock/vsock", "CONFIG_VSOCKETS"): ["vsock_sock", "vsock_transport"],
    ("net/vmw_vsock/vmw_vsock_virtio_transport_common", "CONFIG_VIRTIO_VSOCKETS_COMMON"): [
        "virtio_transport", "virtio_vsock_sock", "virtio_vsock_hdr",
        "virtio_vsock_skb_cb", "virtio_vsock_pkt_info",
    ],
    None: [
        "sk_buff", "sk_buff_head", "sock", "net", "netns_vsock", "iov_iter",
        "msghdr", "kiocb", "file", "file_operations", "miscdevice",
        "vring_used_elem", "vhost_iotlb_msg", "vhost_memory",
    ],
}

# Structs without which the module cannot work.  Any other one may be absent
# from the target's BTF, because nothing there uses it.
REQUIRED = {
    "vhost_dev", "vhost_virtqueue", "vhost_worker", "vhost_work", "vhost_poll",
    "vsock_sock", "vsock_transport", "virtio_transport", "virtio_vsock_sock",
    "virtio_vsock_hdr", "virtio_vsock_skb_cb", "sk_buff", "sock",
}

# Structs that Rust code only has pointers to: bindgen loses a member of theirs.
# (In 7.2 net.ns holds `struct ns_tree;`, a tagged member without a name.)
C_ONLY = {"net"}

# Where the structs of OWNERS are defined, beside the headers of --include.
HEADERS = [
    "linux/fs.h", "linux/miscdevice.h", "linux/skbuff.h", "linux/socket.h",
    "linux/uio.h", "linux/vhost.h", "linux/virtio_vsock.h",
    "net/af_vsock.h", "net/net_namespace.h", "net/sock.h",
]

# Names that bindgen makes up.
BINDGEN_OWN = re.compile(r"_bitfield_|__bindgen_padding_|_bindgen_|bindgen_union_field|_phantom|_address")


class LayoutError(Exception):
    """A reason to end the build, as one message."""


# --- the target -----------------------------------------------------------

def first_existing(candidates, what, package):
    """Returns the first path that exists, or says where it was looked for."""
    for path in candidates:
        if path.exists():
            return path
    looked = "\n".join(f"    {path}" for path in candidates)
    raise LayoutError(
        f"{what} not found, so the struct layouts cannot be compared with it. Looked for:\n{looked}\n"
        f"  Debian: apt install {package}\n"
        "  Elsewhere: name the files with TARGET_MODULES=DIR (a lib/modules/VERSION folder) and TARGET_VMLINUX=FILE.\n"
        "  To build without this check, at your own risk: LAYOUT_CHECK=skip")


def find_vmlinux(args):
    """The file with the kernel image's BTF."""
    release = args.release
    candidates = [args.vmlinux] if args.vmlinux else [
        args.kdir / "vmlinux",
        Path(f"/usr/src/linux-headers-{release}/vmlinux"),
        Path(f"/lib/modules/{release}/build/vmlinux"),
        Path(f"/usr/lib/debug/boot/vmlinux-{release}"),
        Path(f"/usr/lib/debug/lib/modules/{release}/vmlinux"),
    ]
    if not args.vmlinux and platform.release() == release:
        candidates.append(Path("/sys/kernel/btf/vmlinux"))
    return first_existing(candidates, f"BTF of the kernel {release}", f"linux-headers-{release}")


def find_module(args, name):
    """The target's own module `name`, a path below kernel/ without suffix."""
    folders = [args.modules] if args.modules else [Path(f"/lib/modules/{args.release}"), args.kdir]
    candidates = []
    for folder in folders:
        base = folder if folder == args.kdir else folder / "kernel"
        candidates += [base / f"{name}.ko{suffix}" for suffix in ("", ".xz", ".zst", ".gz")]
    return first_existing(candidates, f"the target's {Path(name).name}.ko", f"linux-image-{args.release}")


def unpacked(path, scratch):
    """`path`, or an uncompressed copy of it in `scratch`."""
    if path.suffix == ".ko" or path.name.startswith("vmlinux"):
        return path
    out = scratch / path.stem
    if path.suffix == ".xz":
        out.write_bytes(lzma.decompress(path.read_bytes()))
    elif path.suffix == ".gz":
        out.write_bytes(gzip.decompress(path.read_bytes()))
    else:
        subprocess.run(["zstd", "-q", "-d", path, "-o", out], check=True)
    return out


def config_of(kdir):
    """The options of a prepared tree, as a dict."""
    path = kdir / "include/config/auto.conf"
    if not path.exists():
        raise LayoutError(f"{path} not found: the tree is not prepared (make prepare)")
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if line.startswith("CONFIG_"))


# --- reading pahole -------------------------------------------------------

class Member:
    """One named member: dotted path, bytes from the start, bytes long, bit-field or not."""

    def __init__(self, path, offset, size, bitfield=False, flexible=False):
        self.path, self.offset, self.size = path, offset, size
        self.bitfield, self.flexible = bitfield, flexible


MEMBER = re.compile(r"^(?P<decl>.*);\s*/\*\s*(?P<off>\d+)(?::\s*\d+)?\s+(?P<size>\d+)\s*\*/$")
NAME = re.compile(r"\(\*\s*(?P<fn>\w+)(?:\[\d*\])*\)|(?P<plain>\w+)(?P<dims>(?:\[\d*\])*)(?P<bits>:\d+)?\s*(?:__attribute__.*)?$")


def parse_member(decl, offset, size):
    """Reads the declaration part of one pahole line; None for an unnamed one."""
    match = NAME.search(decl.strip())
    if not match:
        raise LayoutError(f"pahole printed a member that this script cannot read: {decl!r}")
    name = match.group("fn") or match.group("plain")
    dims = match.group("dims") or ""
    return Member(name, offset, size, bool(match.group("bits")), "[0]" in dims or "[]" in dims)


def parse_struct(lines):
    """Reads the body of one struct up to its closing brace; returns (size, members)."""
    stack, size = [[]], None
    for line in lines:
        line = line.strip()
        if line.startswith("/* size:"):
            size = int(re.match(r"/\* size: (\d+)", line).group(1))
        elif re.match(r"(const |volatile )*(struct|union)( \w+)? \{$", line):
            stack.append([])
        elif line.startswith("}") and len(stack) > 1:
            close_nested(stack, line)
        elif match := MEMBER.match(line):
            stack[-1].append(parse_member(match["decl"], int(match["off"]), int(match["size"])))
    if size is None or len(stack) != 1:
        raise LayoutError("pahole's output ended early")
    return size, stack[0]


def close_nested(stack, line):
    """Ends a nested struct or union: its members go up, under its name if it has one."""
    inner = stack.pop()
    match = MEMBER.match(line)
    if not match and line == "};":
        # Of clang's BTF pahole prints an unnamed one twice, the second time without its place.
        return
    decl = match["decl"].lstrip("}").strip() if match else ""
    decl = re.sub(r"__attribute__.*", "", decl).strip()
    if decl:
        named = parse_member(decl, int(match["off"]), int(match["size"]))
        stack[-1].append(named)
        if "[" in decl or "*" in decl:
            return
        for member in inner:
            member.path = f"{named.path}.{member.path}"
    stack[-1] += inner


def read_structs(args, file, base, names):
    """Asks pahole for `names` in `file`; returns {name: (size, members)}."""
    if not shutil.which(args.pahole):
        raise LayoutError(f"{args.pahole} not found: it reads the target's BTF.\n  Debian: apt install pahole")
    command = [args.pahole, "-C", ",".join(names)]
    if base != file:
        command += ["--btf_base", str(base)]
    done = subprocess.run(command + [str(file)], capture_output=True, text=True, check=False)
    structs = {}
    for block in re.finditer(r"^struct (\w+) \{\n(.*?)^\}", done.stdout, re.M | re.S):
        structs[block[1]] = parse_struct(block[2].splitlines())
    if not structs:
        raise LayoutError(f"pahole found no type information in {file}:\n{done.stderr[-400:]}")
    return structs


def target_layouts(args, scratch):
    """All structs of OWNERS as the target has them, with the file each came from."""
    config, base = config_of(args.kdir), unpacked(find_vmlinux(args), scratch)
    layouts = {}
    for owner, names in OWNERS.items():
        file = base
        if owner and config.get(owner[1]) == "m":
            file = unpacked(find_module(args, owner[0]), scratch)
        for name, layout in read_structs(args, file, base, names).items():
            layouts[name] = (file.name, *layout)
    if missing := sorted(REQUIRED - layouts.keys()):
        raise LayoutError(f"the target's BTF does not describe: {', '.join(missing)}")
    return layouts


# --- writing the assertions -----------------------------------------------

def c_assertions(layouts):
    """The C source; returns (text, number of assertions)."""
    out = []
    for name, (origin, size, members) in layouts.items():
        out.append(f'_Static_assert(sizeof(struct {name}) == {size},\n'
                   f'\t"layout: struct {name} is {size} bytes in the target\'s {origin}");')
        for m in members:
            if m.bitfield:
                continue
            out.append(f'_Static_assert(offsetof(struct {name}, {m.path}) == {m.offset},\n'
                       f'\t"layout: {name}.{m.path} is at byte {m.offset} in the target\'s {origin}");')
            if not m.flexible:
                out.append(f'_Static_assert(sizeof(((struct {name} *)0)->{m.path}) == {m.size},\n'
                           f'\t"layout: {name}.{m.path} is {m.size} bytes in the target\'s {origin}");')
    return "\n".join(out) + "\n", len(out)


class Bindings:
    """The structs and unions of bindgen's output, as far as their member names and types go."""

    def __init__(self, files):
        self.types = {}
        for file in files:
            for block in re.finditer(r"^pub (struct|union) (\w+) \{\n(.*?)^\}", Path(file).read_text(), re.M | re.S):
                if "_unused: [u8; 0]" in block[3]:
                    continue  # only declared there, so nothing relies on its layout
                fields = re.findall(r"^    pub (?:r#)?(\w+): (.*?),?$", block[3], re.M)
                self.types.setdefault(block[2], (block[1], fields))

    def members(self, name, base=()):
        """Yields (C name, [(type, Rust name), ...] from the outside in, readable) of each member."""
        kind, fields = self.types[name]
        for field, rust_type in fields:
            if field.startswith("__bindgen_anon_"):
                inner = re.sub(r"^(?:__BindgenUnionField|(?:::)?core::mem::ManuallyDrop)<(\w+)>$", r"\1", rust_type)
                yield from self.members(inner, (*base, (name, field)))
            elif not BINDGEN_OWN.match(field):
                plain = kind == "struct" and "__BindgenUnionField" not in rust_type
                yield field, (*base, (name, field)), plain


def rust_assertions(layouts, bindings):
    """The Rust source; returns (text, number of assertions)."""
    if missing := sorted(REQUIRED - bindings.types.keys()):
        raise LayoutError(
            f"bindgen's output does not define, one member a line: {', '.join(missing)}\n"
            "  bindgen needs rustfmt for that. Debian: apt install rustfmt, then make the tree's rust/bindings again")
    out, stray = [], []
    for name, (origin, size, members) in layouts.items():
        if name in C_ONLY or name not in bindings.types:
            continue
        known = {m.path: m for m in members}
        for field, path, readable in bindings.members(name):
            m = known.get(field) or known.get(field.rstrip("_"))
            if not m:
                stray.append(f"{name}.{field} is in the headers but not in the target's {origin}")
                continue
            offset = " + ".join(f"core::mem::offset_of!({t}, {f})" for t, f in path)
            out.append(f'const _: () = assert!({offset} == {m.offset}, "layout: {name}.{m.path} is at byte {m.offset} in the target\'s {origin}");')
            if readable and not m.flexible:
                t, f = path[-1]
                out.append(f'const _: () = assert!(field_size(|s: {t}| s.{f}) == {m.size}, "layout: {name}.{m.path} is {m.size} bytes in the target\'s {origin}");')
        out.append(f'const _: () = assert!(size_of::<{name}>() == {size}, "layout: {name} is {size} bytes in the target\'s {origin}");')
    if stray:
        raise LayoutError("\n  ".join(stray))
    head = ("/// Size of the member that `_` reads, without reading it.\n"
            "const fn field_size<S, F>(_: fn(S) -> F) -> usize {\n    size_of::<F>()\n}\n\n")
    return head + "\n".join(out) + "\n", len(out)


def write(path, comment, text):
    """Writes a generated source file whole, or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(f"// SPDX-License-Identifier: GPL-2.0\n// {comment}\n\n{text}")
    os.replace(part, path)


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--kdir", type=Path, required=True, help="prepared kernel tree")
    parser.add_argument("--release", required=True, help="release of the target kernel (uname -r)")
    parser.add_argument("--modules", type=Path, help="the target's lib/modules/RELEASE folder")
    parser.add_argument("--vmlinux", type=Path, help="file with the BTF of the target's kernel image")
    parser.add_argument("--pahole", default="pahole")
    parser.add_argument("--include", action="append", default=[], help="header that the C assertions include")
    parser.add_argument("--bindings", action="append", default=[], help="bindgen output to check")
    parser.add_argument("--skip", action="store_true", help="write files without assertions")
    parser.add_argument("--c-out", type=Path, required=True)
    parser.add_argument("--rust-out", type=Path, required=True)
    return parser.parse_args()


def main():
    """Writes both files, or ends with status 1 and the reason."""
    args = arguments()
    if args.skip:
        for path in (args.c_out, args.rust_out):
            write(path, "The layout check was switched off (LAYOUT_CHECK=skip).", "")
        print("warning: LAYOUT_CHECK=skip: struct layouts are NOT compared with the target kernel", file=sys.stderr)
        return 0
    try:
        with tempfile.TemporaryDirectory() as scratch:
            layouts = target_layouts(args, Path(scratch))
        c_text, c_count = c_assertions(layouts)
        rust_text, rust_count = rust_assertions(layouts, Bindings(args.bindings))
    except LayoutError as error:
        print(f"error: layout check: {error}", file=sys.stderr)
        return 1
    comment = f"Generated from the BTF of {args.release}; see scripts/check-layout.py."
    includes = "".join(f'#include "{header}"\n' for header in args.include)
    includes += "".join(f"#include <{header}>\n" for header in HEADERS)
    write(args.c_out, comment, f"{includes}\n{c_text}")
    write(args.rust_out, comment, rust_text)
    print(f"layout check: {len(layouts)} structs of {args.release}: {c_count} assertions in C, {rust_count} in Rust")
    return 0


if __name__ == "__main__":
    sys.exit(main())
