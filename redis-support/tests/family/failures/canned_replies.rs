//! Replies that no Redis sends when the tests want them: a server of the tests sends them.

use leasehold_core::ErrorKind;
use leasehold_core::backend::{Feature, LockBackend};
use leasehold_testbed::Redis;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{acquire, lease};
use crate::family::connect;

#[tokio::test]
async fn a_server_that_is_loading_is_not_ready_yet() {
    // A real one loads too fast to be caught; this one answers as it does while it loads.
    let url = canned("-LOADING Redis is loading the dataset in memory\r\n").await;

    let error = connect(&url).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("LOADING"), "{error}");
}

#[tokio::test]
async fn a_cluster_node_asks_for_another_connection() {
    for reply in ["-MOVED 3999 127.0.0.1:6381\r\n", "-CROSSSLOT Keys in request don't hash\r\n"] {
        let url = canned_after_handshake(Answer::Next(reply)).await;
        let backend = connect(&url).await.unwrap();

        let error = acquire(&backend, &lease("job")).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("cluster"), "{error}");
    }
    let url = canned_after_handshake(Answer::Next("-CLUSTERDOWN It is down\r\n")).await;
    let backend = connect(&url).await.unwrap();
    // One client crate ends the connection then, and so the outcome is unknown.
    let error = acquire(&backend, &lease("job")).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
}

#[tokio::test]
async fn a_server_that_is_no_redis_is_recognized() {
    for garbage in ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "\0\0\0\0"] {
        let url = canned(garbage).await;

        let error = connect(&url).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Unexpected, "{garbage:?}: {error}");
    }
}

#[tokio::test]
async fn replies_of_another_form_are_errors_and_no_panic() {
    for reply in [
        "+OK\r\n",
        ":7\r\n",
        "_\r\n",
        "#t\r\n",
        "*0\r\n",
        "*2\r\n:1\r\n$1\r\nx\r\n",
        "*2\r\n:1\r\n:-5\r\n",
        "*3\r\n:0\r\n+soon\r\n$1\r\nx\r\n",
        "%1\r\n+granted\r\n#t\r\n",
    ] {
        let url = canned_after_handshake(Answer::Next(reply)).await;
        let backend = connect(&url).await.unwrap();

        let error = acquire(&backend, &lease("job")).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Unexpected, "{reply:?}: {error}");
    }
    // A null of RESP2, which not all client crates understand here.
    let url = canned_after_handshake(Answer::Last("$-1\r\n".to_owned())).await;
    let backend = connect(&url).await.unwrap();
    let error = acquire(&backend, &lease("job")).await.unwrap_err();
    assert!(error.may_have_been_applied(), "{error}");
    for broken in ["*2\r\n:1\r\n", "?what\r\n", "$5\r\nab", "*99999999999999999999\r\n"] {
        let url = canned_after_handshake(Answer::Last(broken.to_owned())).await;
        let backend = connect(&url).await.unwrap();

        let error = acquire(&backend, &lease("job")).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{broken:?}: {error}");
    }
}

#[tokio::test]
async fn a_server_without_resp3_is_spoken_to_in_resp2() {
    let redis = Redis::start().await;
    let url = format!("{}?protocol=resp2", redis.url());
    let forced = connect(&url).await.unwrap();
    assert!(!forced.capabilities().supports(Feature::Push));
    acquire(&forced, &lease("job")).await.unwrap();

    let url = serve(|command| match command {
        "HELLO" => Answer::Next("-ERR unknown command `HELLO`, with args beginning with: `3`\r\n"),
        _ => Answer::Next("+OK\r\n"),
    })
    .await;
    let fallen_back = connect(&url).await.unwrap();
    assert!(!fallen_back.capabilities().supports(Feature::Push));
}

/// The URL of a server that answers its first request with `reply`, and hangs up.
async fn canned(reply: &'static str) -> String {
    serve(move |_command| Answer::Last(reply.repeat(3))).await
}

/// The URL of a server that answers the handshake as Redis does, and then with `last`.
async fn canned_after_handshake(last: Answer) -> String {
    serve(move |command| match command {
        "EVALSHA" => last.clone(),
        "HELLO" => Answer::Next("%1\r\n$5\r\nproto\r\n:3\r\n"),
        "SUBSCRIBE" => Answer::Next("-ERR unknown command 'subscribe'\r\n"),
        _ => Answer::Next("+OK\r\n"),
    })
    .await
}

/// The answer of a server to one command.
#[derive(Clone)]
enum Answer {
    Next(&'static str),
    /// And then hangs up.
    Last(String),
}

/// Serves connections.
async fn serve(answer: impl Fn(&str) -> Answer + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(&mut stream);
                while let Some(command) = next_command(&mut stream).await {
                    let (reply, is_last) = match answer(&command) {
                        Answer::Next(reply) => (reply.to_owned(), false),
                        Answer::Last(reply) => (reply, true),
                    };
                    drop(stream.write_all(reply.as_bytes()).await);
                    if is_last {
                        return;
                    }
                }
            });
        }
    });
    url
}

/// Reads a command and returns its first word: an array of strings, or a line.
async fn next_command(stream: &mut BufReader<&mut TcpStream>) -> Option<String> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|len| *len > 0)?;
    let Some(count) = line.strip_prefix('*') else {
        return line.split_whitespace().next().map(str::to_owned);
    };
    let mut words = Vec::new();
    for _ in 0..count.trim_end().parse().ok()? {
        let mut len = String::new();
        stream.read_line(&mut len).await.ok()?;
        let len: usize = len.trim_end().strip_prefix('$')?.parse().ok()?;
        let mut word = vec![0; len + 2];
        stream.read_exact(&mut word).await.ok()?;
        words.push(String::from_utf8_lossy(&word[..len]).into_owned());
    }
    words.into_iter().next()
}
