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
// A LUN of this grant was opened, and then these clients were `seen` to have the image open; `known` are the
// ones of before that. A shared volume that moves from node to node, and is never without a grant, would
// gain one client each time. The others have ended if each LUN that may be open accounts for one that is
// seen: a list that lacks a client which lives, as when its OSD was just started, is too short.
void EndClientsNotSeen(Catalogue& catalogue, const ImageStore& images, const GrantRow& grant,
                       const std::set<std::string>& known, const std::set<std::string>& seen);

}  // namespace lunkeeper
