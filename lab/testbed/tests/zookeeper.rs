//! The testbed's own ZooKeeper servers.

use std::io;
use std::time::Duration;

use leasehold_testbed::{CuratorEvent, NetworkFault, ZooKeeper, ZooKeeperOptions, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Long for a server that runs and is not cut off.
const A_WHILE: Duration = Duration::from_millis(500);

/// A session, with as much of the protocol as it takes to write and to read a node.
struct Session(TcpStream);

impl Session {
    async fn open(address: &str) -> io::Result<Self> {
        let mut session = Self(TcpStream::connect(address).await?);
        let mut request = vec![0; 45];
        // A timeout of 30 s, and a password of 16 bytes.
        request[12..16].copy_from_slice(&30_000_i32.to_be_bytes());
        request[27] = 16;
        session.exchange(&request).await?;
        Ok(session)
    }

    /// Creates a node that everybody may read.
    async fn create(&mut self, path: &str, data: &str) -> io::Result<()> {
        let everybody = [&31_i32.to_be_bytes()[..], &text("world"), &text("anyone")].concat();
        let one = 1_i32.to_be_bytes();
        let persistent = 0_i32.to_be_bytes();
        let body = [&text(path)[..], &text(data), &one, &everybody, &persistent].concat();
        self.request(1, &body).await?;
        Ok(())
    }

    async fn read(&mut self, path: &str) -> io::Result<String> {
        let without_watch = [0];
        let reply = self.request(4, &[&text(path)[..], &without_watch].concat()).await?;
        let length = i32::from_be_bytes(reply[..4].try_into().unwrap());
        let data = &reply[4..4 + usize::try_from(length).unwrap()];
        Ok(String::from_utf8(data.to_vec()).unwrap())
    }

    async fn request(&mut self, operation: i32, body: &[u8]) -> io::Result<Vec<u8>> {
        let number = 1_i32.to_be_bytes();
        let header = [number, operation.to_be_bytes()].concat();
        let reply = self.exchange(&[&header, body].concat()).await?;
        // A number, a zxid and an error.
        match i32::from_be_bytes(reply[12..16].try_into().unwrap()) {
            0 => Ok(reply[16..].to_vec()),
            error => Err(io::Error::other(format!("error {error}"))),
        }
    }

    async fn exchange(&mut self, packet: &[u8]) -> io::Result<Vec<u8>> {
        let Self(stream) = self;
        stream
            .write_all(&[&u32::try_from(packet.len()).unwrap().to_be_bytes(), packet].concat())
            .await?;
        let mut reply = vec![0; stream.read_u32().await? as usize];
        stream.read_exact(&mut reply).await?;
        Ok(reply)
    }
}

/// A text after its length.
fn text(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat()
}

async fn create(zookeeper: &ZooKeeper, member: usize, path: &str) {
    let mut session = Session::open(&zookeeper.endpoints()[member]).await.unwrap();
    session.create(path, "v").await.unwrap();
}

async fn read(zookeeper: &ZooKeeper, member: usize, path: &str) -> io::Result<String> {
    Session::open(&zookeeper.endpoints()[member]).await?.read(path).await
}

mod one_server {
    use super::*;

    #[tokio::test]
    async fn answers_until_it_is_dropped() {
        let zookeeper = ZooKeeper::start().await;
        create(&zookeeper, 0, "/k").await;
        assert_eq!(read(&zookeeper, 0, "/k").await.unwrap(), "v");
        assert_eq!(zookeeper.leader().await, 0);

        let [endpoint] = &zookeeper.endpoints()[..] else { panic!("one server has one address") };
        assert_eq!(zookeeper.url(), format!("zookeeper://{endpoint}"));
        drop(zookeeper);

        assert!(TcpStream::connect(endpoint).await.is_err());
    }

    #[tokio::test]
    async fn dies_when_a_test_panics() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let panicked = tokio::spawn(async {
            let zookeeper = ZooKeeper::start().await;
            sender.send(zookeeper.endpoints()).unwrap();
            panic!("as a test does");
        });

        assert!(panicked.await.unwrap_err().is_panic());
        assert!(TcpStream::connect(&receiver.await.unwrap()[0]).await.is_err());
    }

    #[tokio::test]
    async fn tells_its_state_and_its_numbers() {
        let zookeeper = ZooKeeperOptions::new().tick(Duration::from_millis(700)).start().await;
        let before = zookeeper.metric(0, "zk_znode_count").await;

        create(&zookeeper, 0, "/k").await;

        assert_eq!(zookeeper.metric(0, "zk_znode_count").await, before + 1.0);
        assert!(zookeeper.ask(0, "conf").await.contains("tickTime=700"));
        assert_eq!(zookeeper.tick(), Duration::from_millis(700));
    }

    #[tokio::test]
    async fn takes_settings_and_properties() {
        let options = ZooKeeperOptions::new().set("maxSessionTimeout", "9000");
        let zookeeper = options.property("zookeeper.maxCnxns", "7").start().await;

        let conf = zookeeper.ask(0, "conf").await;

        assert!(conf.contains("maxSessionTimeout=9000"), "{conf}");
        assert!(zookeeper.ask(0, "envi").await.contains("java.version"));
    }

    #[tokio::test]
    async fn with_a_full_disk_ends() {
        let zookeeper = ZooKeeperOptions::new().small_disks().start().await;
        create(&zookeeper, 0, "/k").await;
        let mut session = Session::open(&zookeeper.endpoints()[0]).await.unwrap();

        zookeeper.fill_disk(0);
        let large = "x".repeat(500_000);
        let refused = session.create("/l", &large).await;

        assert!(refused.is_err());
        until("it has ended", async || {
            TcpStream::connect(&zookeeper.endpoints()[0]).await.is_err()
        })
        .await;
    }
}

mod an_ensemble {
    use super::*;

    async fn start() -> ZooKeeper {
        ZooKeeperOptions::new().members(3).start().await
    }

    #[tokio::test]
    async fn elects_another_leader_when_one_is_gone() {
        let mut zookeeper = start().await;
        let first = zookeeper.leader().await;
        create(&zookeeper, first, "/k").await;

        zookeeper.kill_member(first);
        let second = zookeeper.leader().await;
        assert_ne!(second, first);
        assert_eq!(read(&zookeeper, second, "/k").await.unwrap(), "v");

        zookeeper.restart_member(first).await;
        assert_eq!(read(&zookeeper, first, "/k").await.unwrap(), "v");
        zookeeper.pause_member(second);
        assert_ne!(zookeeper.leader().await, second);
        zookeeper.resume_member(second);
    }

    #[tokio::test]
    async fn keeps_data_and_ports_over_a_restart() {
        let mut zookeeper = start().await;
        let endpoints = zookeeper.endpoints();
        create(&zookeeper, 0, "/k").await;

        zookeeper.kill();
        zookeeper.restart().await;

        assert_eq!(zookeeper.endpoints(), endpoints);
        assert_eq!(read(&zookeeper, 2, "/k").await.unwrap(), "v");
    }

    #[tokio::test]
    async fn is_silent_when_paused_and_goes_on_where_it_was() {
        let zookeeper = start().await;

        zookeeper.pause();
        assert!(timeout(A_WHILE, read(&zookeeper, 0, "/k")).await.is_err());
        zookeeper.resume();

        create(&zookeeper, 0, "/k").await;
        // A follower may lag behind.
        until("all have it", async || read(&zookeeper, 1, "/k").await.is_ok()).await;
    }

    #[tokio::test]
    async fn has_a_proxy_before_each_member() {
        let zookeeper = start().await;
        let proxies = zookeeper.proxies().await;
        let open = async |i: usize| Session::open(&proxies[i].address()).await;
        open(0).await.unwrap();

        proxies[0].set_network_fault(NetworkFault::BlackHole);

        assert!(timeout(A_WHILE, open(0)).await.is_err());
        open(1).await.unwrap();
    }
}

mod curator {
    use super::*;

    #[tokio::test]
    async fn stands_in_line_for_a_mutex_and_reads_together() {
        let zookeeper = ZooKeeper::start().await;
        let mut curator = zookeeper.curator(Duration::from_secs(10)).await;
        let held = |job: &str| CuratorEvent::Held(job.to_owned());
        curator.mutex("a", "/mutex").await;
        assert_eq!(curator.event().await, held("a"));
        curator.mutex("b", "/mutex").await;
        curator.revoke("c", "/mutex").await;
        let mut events = [curator.event().await, curator.event().await];
        events.sort_by_key(|event| matches!(event, CuratorEvent::Done(..)));
        assert_eq!(events[0], CuratorEvent::Asked("a".to_owned()));

        curator.release("a").await;

        assert_eq!(curator.event().await, CuratorEvent::Releases("a".to_owned()));
        let next = [curator.event().await, curator.event().await];
        assert!(next.contains(&CuratorEvent::Released("a".to_owned())), "{next:?}");
        assert!(next.contains(&held("b")), "{next:?}");

        curator.read("d", "/shared").await;
        assert_eq!(curator.event().await, held("d"));
        curator.read("e", "/shared").await;
        assert_eq!(curator.event().await, held("e"));
        curator.write("f", "/free").await;
        assert_eq!(curator.event().await, held("f"));
    }

    #[tokio::test]
    async fn tells_how_long_its_work_took() {
        let zookeeper = ZooKeeper::start().await;
        let mut curator = zookeeper.curator(Duration::from_secs(10)).await;

        curator.cycles("a", "/mutex", 10).await;
        assert!(matches!(curator.event().await, CuratorEvent::Done(job, _) if job == "a"));
        curator.many("b", "/many", 10).await;
        assert!(matches!(curator.event().await, CuratorEvent::Done(job, _) if job == "b"));

        let ephemerals = zookeeper.metric(0, "zk_ephemerals_count").await;
        assert_eq!(ephemerals, 10.0);
    }
}
