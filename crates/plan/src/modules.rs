//! Modules of the kernel that VFs may need.

/// All modules that a plan may load, by their name in `/sys/module`.
pub const KNOWN: [&str; 9] = [
    "vfio",
    "vfio_pci",
    "uio_pci_generic",
    "igb_uio",
    "virtio_vdpa",
    "vhost_vdpa",
    "tun",
    "vhost_net",
    "ib_core",
];

/// The module of a driver for VFs in programs.
pub fn of_driver(driver: &str) -> Option<&'static str> {
    match driver {
        "vfio-pci" => Some("vfio_pci"),
        "uio_pci_generic" => Some("uio_pci_generic"),
        "igb_uio" => Some("igb_uio"),
        _ => None,
    }
}

/// Modules that programs in pods use beside VFs, and that no VF needs. Nobody is told when they are missing, or cannot be
/// loaded.
pub(crate) const WELCOME: [&str; 2] = ["tun", "vhost_net"];

/// How a module gets onto a machine, for people.
pub(crate) fn origin(module: &str) -> &'static str {
    match module {
        "igb_uio" => "build and install it from dpdk-kmods",
        _ => {
            "install the package with all modules of the running kernel (linux-modules-extra, kernel-modules-extra)"
        }
    }
}
