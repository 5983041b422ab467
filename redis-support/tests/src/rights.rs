//! The rights that the documentation gives.

/// To use locks of all kinds on one server.
pub const DOCUMENTED: &str = "resetkeys resetchannels -@all ~lock:* &lock:* +publish +subscribe \
    +evalsha +eval +get +mget +set +del +unlink +exists +pexpire +pttl +time +client|tracking +client|caching \
    +zadd +zrem +zcard +zscore +zmscore +zrank +zrange +zrangebyscore +hset +hget +hmget +hdel +hincrby";

/// A list of keys takes this in addition.
pub const OF_LISTS: &str = "+scan";

/// A member of a quorum takes these in addition.
pub const OF_MEMBERS: &str = "+info +getex";

/// And these, to keep its vote over a restart.
pub const OF_DURABLE_MEMBERS: &str = "+config|get +acl|dryrun";

/// The rights that a cluster takes in addition.
pub const OF_CLUSTERS: &str = "+cluster|slots +cluster|nodes +asking";
