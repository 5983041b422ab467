//! The rights that the documentation gives.

/// To use locks of all kinds on one server.
pub(crate) const DOCUMENTED: &str = "resetkeys resetchannels -@all ~lock:* &lock:* +publish +subscribe \
    +evalsha +eval +get +mget +set +mset +del +unlink +exists +pexpire +pttl +time +client|tracking +client|caching \
    +zadd +zrem +zcard +zscore +zrank +zrange +zrangebyscore +hset +hget +hmget +hdel +hincrby";

/// What a cluster takes in addition.
pub(crate) const OF_CLUSTERS: &str = "+cluster|slots +cluster|nodes +asking";
