//! The identity and the clocks of the machine on which a file can be used.

use std::fmt;
use std::fs;
#[cfg(target_os = "linux")]
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::Error;
#[cfg(target_os = "linux")]
use leasehold_sql_support::Failure;
use leasehold_sql_support::request::micros;
use leasehold_sql_support::rows::Clock;
use uuid::Uuid;

/// The only machine on which a lock file can be used, with its machine ID, boot ID and clock.
///
/// [`Host::this`] is the default. Tests create their own hosts with [`Host::new`].
#[derive(Clone)]
pub struct Host {
    pub(crate) machine: String,
    pub(crate) boot: String,
    clock: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl Host {
    /// Creates a host from a machine ID, the machine's current boot ID, and a clock. All processes
    /// must use the same clock, which must not go backwards between reboots of the machine.
    pub fn new(
        machine: impl Into<String>,
        boot: impl Into<String>,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self { machine: machine.into(), boot: boot.into(), clock: Arc::new(clock) }
    }

    /// Returns the identity and the clock of this machine.
    ///
    /// # Errors
    ///
    /// Returns [`Unsupported`](leasehold_core::ErrorKind::Unsupported) in a time namespace whose
    /// clock differs from the machine's clock, because processes inside and outside the namespace
    /// would measure the same lease with two clocks. Also returns
    /// [`Unsupported`](leasehold_core::ErrorKind::Unsupported) in a container with a fake boot ID,
    /// such as an LXC or systemd-nspawn container.
    pub fn this() -> Result<Self, Error> {
        let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        if has_offset(&offsets) {
            let message = "this process is in a time namespace with its own clock, but a lock file requires the machine's clock";
            return Err(Error::new(leasehold_core::ErrorKind::Unsupported, message));
        }
        Ok(Self::new(machine(), boot()?, since_boot))
    }

    /// Returns the time since the machine was started, by which leases expire, and the time since
    /// 1970, from which tokens are derived.
    pub(crate) fn now(&self) -> Clock {
        // If the clock shows a time before 1970, tokens continue from the last token.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { now: micros((self.clock)()), wall: micros(wall) }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("boot", &self.boot).finish_non_exhaustive()
    }
}

/// Returns whether the content of `timens_offsets` changes the clock that leases use.
fn has_offset(offsets: &str) -> bool {
    offsets.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("boottime") && words.any(|word| word != "0")
    })
}

/// Returns a value derived from the machine ID, because systemd asks programs not to expose the ID.
/// Returns an empty string if there is no machine ID, as in many containers.
fn machine() -> String {
    /// A random namespace for machine IDs.
    const NAMESPACE: Uuid = Uuid::from_u128(0x70a6_2f5e_3dfb_4d2c_9c0b_b1b2_4c5f_0e91);

    let ids = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
    let id = ids.iter().find_map(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    match id.trim() {
        "" => String::new(),
        id => Uuid::new_v5(&NAMESPACE, id.as_bytes()).to_string(),
    }
}

#[cfg(target_os = "linux")]
fn boot() -> Result<String, Error> {
    boot_in("/proc/sys/kernel/random/boot_id")
}

/// Reads the boot ID from a file, which must be the kernel's original file. Containers with fake
/// files would end each other's leases.
#[cfg(target_os = "linux")]
fn boot_in(path: &str) -> Result<String, Error> {
    let mut file = fs::File::open(path).map_err(unreadable)?;
    let found = rustix::fs::fstatfs(&file).map_err(|error| unreadable(error.into()))?;
    if found.f_type != rustix::fs::PROC_SUPER_MAGIC {
        let message = "this container has its own boot ID, but a lock file requires the kernel's boot ID; unmount /proc/sys/kernel/random/boot_id in the container, or use a server for the locks";
        return Err(Error::new(leasehold_core::ErrorKind::Unsupported, message));
    }
    let mut id = String::new();
    file.read_to_string(&mut id).map_err(unreadable)?;
    Ok(id.trim().to_owned())
}

/// On this system, leases expire according to the time of day, which keeps advancing across a
/// restart.
#[cfg(not(target_os = "linux"))]
fn boot() -> Result<String, Error> {
    Ok(String::new())
}

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.try_into().expect("the time since boot is not negative")
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(target_os = "linux")]
fn unreadable(error: io::Error) -> Error {
    let message = "cannot read the machine's boot ID, which a lock file needs to detect restarts";
    Failure::Denied.because(message, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_boot_time_of_its_own_sets_a_namespace_apart() {
        assert!(!has_offset(""));
        assert!(!has_offset("monotonic  0  0\nboottime   0   0\n"));
        assert!(!has_offset("monotonic  86400  0\nboottime   0   0\n"));
        assert!(has_offset("monotonic  0  0\nboottime   604800   0\n"));
        assert!(has_offset("monotonic  0  0\nboottime   0   -1\n"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn boot_id_that_is_not_the_kernels_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), boot().unwrap()).unwrap();

        let error = boot_in(file.path().to_str().unwrap()).unwrap_err();

        assert_eq!(error.kind(), leasehold_core::ErrorKind::Unsupported, "{error}");
    }

    #[test]
    fn this_machine_is_known_again_and_its_id_not_shown() {
        let (one, other) = (Host::this().unwrap(), Host::this().unwrap());

        assert_eq!((&one.machine, &one.boot), (&other.machine, &other.boot));
        let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        assert!(id.trim().is_empty() || !one.machine.replace('-', "").contains(id.trim()));
        assert!(one.now().now <= other.now().now);
    }
}
