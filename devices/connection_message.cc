// A connection crosses three borders in this message: from array agent to controller, from controller to
// node, and from the node's plugin to the data path. The secrets are in it as they are. The first two run
// over TLS, the third over a unix socket that only root may use.
#include "devices/connection_message.h"

namespace lunkeeper {

devices::v1::Digests ToMessage(Digests digests) { return static_cast<devices::v1::Digests>(digests); }

Digests FromMessage(devices::v1::Digests digests) {
  if (digests == devices::v1::DIGESTS_NONE) return Digests::kNone;
  return digests == devices::v1::DIGESTS_HEADER ? Digests::kHeader : Digests::kAll;
}

devices::v1::Connection ToMessage(const Connection& connection) {
  devices::v1::Connection message;
  message.set_portal(connection.portal);
  message.set_target(connection.target.value());
  message.set_initiator(connection.initiator.value());
  message.set_lun(connection.lun);
  message.set_chap_user(connection.chap.user);
  message.set_chap_secret(connection.chap.secret);
  for (const std::string& portal : connection.other_portals) message.add_other_portals(portal);
  for (const std::string& portal : connection.peer_portals) message.add_peer_portals(portal);
  message.set_target_chap_user(connection.target_chap.user);
  message.set_target_chap_secret(connection.target_chap.secret);
  message.set_signing_key(connection.signing_key);
  message.set_digests(ToMessage(connection.digests));
  return message;
}

Connection FromMessage(const devices::v1::Connection& message) {
  return {.portal = message.portal(),
          .target = Iqn(message.target()),
          .initiator = Iqn(message.initiator()),
          .lun = message.lun(),
          .chap = {.user = message.chap_user(), .secret = message.chap_secret()},
          .target_chap = {.user = message.target_chap_user(), .secret = message.target_chap_secret()},
          .other_portals = {message.other_portals().begin(), message.other_portals().end()},
          .peer_portals = {message.peer_portals().begin(), message.peer_portals().end()},
          .digests = FromMessage(message.digests()),
          .signing_key = message.signing_key()};
}

void ClearSecrets(devices::v1::Connection& message) {
  message.clear_chap_secret();
  message.clear_target_chap_secret();
  message.clear_signing_key();
}

}  // namespace lunkeeper
