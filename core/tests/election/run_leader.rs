//! Code that runs while one leads.

use super::*;

#[tokio::test(start_paused = true)]
async fn leads_while_it_works_and_resigns_after() {
    let fixture = Fixture::new();
    let election = fixture.process(options()).0.election("k").unwrap();

    let seen = election.run_leader("v", async |term| {
        term.proclaim("w").await.unwrap();
        (election.leader().await.unwrap().unwrap(), term.token().number())
    });
    let (leader, token) = seen.await.unwrap();

    assert_eq!((leader.value().as_str(), token), ("w", 1));
    assert!(election.leader().await.unwrap().is_none());
    assert_eq!(fixture.store.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn stops_work_when_the_leadership_is_lost() {
    let fixture = Fixture::new();
    let (client, faults) = fixture.process(options());
    let election = client.election("k").unwrap();
    faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 10_000);
    let (started_at, stopped) = (fixture.clock.now(), Arc::new(AtomicBool::new(false)));

    let error = election
        .run_leader("v", async |_term| {
            let _dropped = OnDrop(Arc::clone(&stopped));
            std::future::pending::<()>().await;
        })
        .await
        .unwrap_err();

    assert_eq!((error.kind(), error.loss()), (ErrorKind::LeaseLost, Some(LossReason::Expired)));
    assert!(stopped.load(Ordering::SeqCst));
    assert!(fixture.clock.now() < started_at + TTL);
}

struct OnDrop(Arc<AtomicBool>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn that_is_called_again_after_a_loss_leads_again() {
    let fixture = Fixture::new();
    let client = fixture.process(options()).0;
    let election = client.election("k").unwrap();
    let admin = fixture.process(options()).0.admin();
    let mut tokens = Vec::new();

    while tokens.len() < 4 {
        let led = election.run_leader("v", async |term| {
            tokens.push(term.token().number());
            admin.force_release("k", "test").await.unwrap();
            std::future::pending::<()>().await;
        });
        assert_eq!(led.await.unwrap_err().kind(), ErrorKind::LeaseLost);
    }

    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[tokio::test(start_paused = true)]
async fn whose_release_gets_no_answer_keeps_its_result() {
    let fixture = Fixture::new();
    let (client, faults) = fixture.process(options());
    let election = client.election("k").unwrap();
    faults.inject(Operation::Release, Fault::Fail(ErrorKind::Unavailable), 60);

    assert_eq!(election.run_leader("v", async |_term| 42).await.unwrap(), 42);

    pass(TTL).await;
    assert_eq!(fixture.store.keys(), 0);
}
