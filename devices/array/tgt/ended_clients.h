#pragma once
// Tells the store which of its clients have ended, by which tgtd had an image open while its grant goes on
// (gateway_clients.h). Only what is certain: a client that lives and is shut out costs its node the volume.
// Where another LUN of the same image may be open, nobody knows whose client is whose. All of them stay then
// until another LUN of the image is opened, the last tgtd with the image ends, or the volume's last grant.
//
// Functions without state. They ask the catalogue, and nobody else.

#include <set>
#include <string>

#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/image_store.h"

namespace lunkeeper {

// No tgtd of this number runs, and none is started meanwhile.
void EndClientsOfTgtd(Catalogue& catalogue, const ImageStore& images, int tgtd);
// tgtd has closed the image of this grant. The caller is inside the volume's gate.
void EndClientsOfClosed(Catalogue& catalogue, const ImageStore& images, const GrantRow& grant);
// For a shared volume that moves from node to node, is never without a grant, and would gain a client each
// time. A LUN of this grant has just been opened. `known`: the image's clients that were registered before
// that; `seen`: the ones that have it open after that. Clients that are known and not seen have ended, if as
// many are seen as LUNs may be open. Fewer mean a list that lacks clients which live, as when an OSD has
// just started: then nobody has ended.
void EndClientsNotSeen(Catalogue& catalogue, const ImageStore& images, const GrantRow& grant,
                       const std::set<std::string>& known, const std::set<std::string>& seen);

}  // namespace lunkeeper
