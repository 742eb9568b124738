//! A real agent and its clients. One program for all of these tests: it is built and linked once.

mod agent_thread;
mod clients;
mod config;
mod etcd_gateway;
mod http;
mod lifecycle;
mod line_protocol;
mod waiting;
