// A connection crosses three borders in this message: from array agent to controller, from controller to
// node, and from the node's plugin to the data path. The CHAP secret is in it as it is. The first two run
// over TLS, the third over a unix socket that only root may use.
#include "devices/connection_message.h"

namespace lunkeeper {

devices::v1::Connection ToMessage(const Connection& connection) {
  devices::v1::Connection message;
  message.set_portal(connection.portal);
  message.set_target(connection.target.value());
  message.set_initiator(connection.initiator.value());
  message.set_lun(connection.lun);
  message.set_chap_user(connection.chap.user);
  message.set_chap_secret(connection.chap.secret);
  return message;
}

Connection FromMessage(const devices::v1::Connection& message) {
  return {.portal = message.portal(),
          .target = Iqn(message.target()),
          .initiator = Iqn(message.initiator()),
          .lun = message.lun(),
          .chap = {.user = message.chap_user(), .secret = message.chap_secret()}};
}

}  // namespace lunkeeper
