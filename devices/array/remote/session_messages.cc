#include "devices/array/remote/session_messages.h"

#include "base/status_macros.h"
#include "devices/array/remote/wire.h"

namespace lunkeeper::wire {

v1::SessionsResponse ToMessage(const SeenSessions& seen) {
  v1::SessionsResponse out;
  for (const GrantSession& session : seen.sessions) *out.add_sessions() = ToMessage(session);
  for (const UnseenGrants& unseen : seen.unseen) {
    v1::UnseenGrants* part = out.add_unseen();
    part->set_why(unseen.why);
    for (const auto& [volume, node] : unseen.grants) {
      v1::UnseenGrant* grant = part->add_grants();
      grant->set_volume_id(volume.value());
      grant->set_node_id(node.value());
    }
  }
  return out;
}

absl::Status AnswerSessions(GrantStore& grants, const v1::SessionsRequest& request,
                            v1::SessionsResponse* response) {
  SeenSessions seen;
  if (request.unseen_is_unknown()) {
    ASSIGN_OR_RETURN(seen, grants.ListSeenSessions());
  } else {
    ASSIGN_OR_RETURN(seen.sessions, grants.ListSessions());
  }
  *response = ToMessage(seen);
  return absl::OkStatus();
}

SeenSessions FromMessage(const v1::SessionsResponse& response) {
  SeenSessions seen;
  for (const v1::Session& session : response.sessions()) seen.sessions.push_back(FromMessage(session));
  for (const v1::UnseenGrants& part : response.unseen()) {
    UnseenGrants& unseen = seen.unseen.emplace_back();
    unseen.why = part.why();
    for (const v1::UnseenGrant& grant : part.grants())
      unseen.grants.emplace_back(VolumeId(grant.volume_id()), NodeId(grant.node_id()));
  }
  return seen;
}

}  // namespace lunkeeper::wire
