//! Calls that some clients make before they use a server: its status and the members.

use std::sync::Arc;

use tonic::Status;

use super::proto::*;
use super::{Etcd, error};
use crate::http::{Authenticated, Caller};
use crate::tokens::Right;

/// The version of etcd's API that is served in part: some clients refuse old ones.
const VERSION: &str = concat!("3.4.0-hallpass.", env!("CARGO_PKG_VERSION"));

impl Etcd {
    pub(super) async fn status(self: Arc<Self>, _: Caller, _: StatusRequest) -> Result<StatusResponse, Status> {
        let status = self.api.service.shared().node().status();
        let (header, version) = (self.header(), VERSION.to_owned());
        let (leader, raft_term) = (status.steward.map_or(0, u64::from), status.epoch.unwrap_or(0));
        let errors = if leader == 0 { vec!["etcdserver: no leader".to_owned()] } else { Vec::new() };
        Ok(StatusResponse { header, version, leader, raft_term, errors, ..StatusResponse::default() })
    }

    /// A token by its name, with itself as the password: `etcdctl --user NAME:TOKEN` and others send tokens that they got so.
    pub(super) async fn authenticate(
        self: Arc<Self>,
        caller: Caller,
        request: AuthenticateRequest,
    ) -> Result<AuthenticateResponse, Status> {
        let AuthenticateRequest { name, password } = request;
        match self.api.access.authenticate(&name, &password, &caller.origin) {
            Authenticated::Yes => Ok(AuthenticateResponse { header: self.header(), token: password }),
            Authenticated::No => Err(error::not_authenticated()),
            Authenticated::NotNeeded => Err(error::no_authentication()),
        }
    }

    /// All members, but only this one with an address for clients: leases are an agent's own, so a client that asks for other
    /// addresses must not spread its requests over them.
    pub(super) async fn member_list(
        self: Arc<Self>,
        caller: Caller,
        here: Option<String>,
        _: MemberListRequest,
    ) -> Result<MemberListResponse, Status> {
        let status = self.api.service.shared().node().status();
        // A caller that may not inspect the group is told of this member alone.
        let is_shown = |id| id == status.id || caller.may_some(Right::Inspect);
        let members = status.members.iter().filter(|member| is_shown(member.id)).map(|member| Member {
            id: member.id.into(),
            name: member.name.clone().unwrap_or_else(|| member.address.clone()),
            peer_urls: vec![format!("http://{}", member.address)],
            client_urls: here.iter().filter(|_| member.id == status.id).cloned().collect(),
            is_learner: !member.voter && member.id != status.id,
        });
        Ok(MemberListResponse { header: self.header(), members: members.collect() })
    }
}
