//! Servers of the testbed, in one binary.

mod etcd;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod zookeeper;
