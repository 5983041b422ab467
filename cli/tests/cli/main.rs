//! The command, as its users run it, on real stores.

mod databases;
mod doctor;
mod etcd;
mod help;
mod hold;
mod jobs;
mod json;
mod keys;
mod more_verbs;
mod operator;
mod output;
mod pages;
mod redis;
mod redlock;
mod settings;
mod supervision;
mod support;
mod terminal;
mod this_machine;
mod zookeeper;
