//! A client beside another.

use super::*;

#[tokio::test]
async fn that_moves_a_lease_ends_none_on_which_others_hang() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let one = EtcdBackend::connect(&etcd.url()).await.unwrap();
    let other = EtcdBackend::connect(&etcd.url()).await.unwrap();
    let [moves, stays] = ["moves", "stays"]
        .map(|name| Lease::new(&LockKey::new(name).unwrap(), LONG).with_tenure(Tenure::Kept));
    for lease in [&moves, &stays] {
        one.acquire(&Claim::new(lease.clone())).await.unwrap();
    }

    let moves = moves.with_tenure(Tenure::Fixed);
    assert_eq!(other.renew(&moves).await.unwrap(), Renewal::Renewed);

    assert_eq!(keys(&store).await, 2);
    assert_eq!(one.renew(&stays).await.unwrap(), Renewal::Renewed);
}
