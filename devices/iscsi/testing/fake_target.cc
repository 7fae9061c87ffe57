#include "devices/iscsi/testing/fake_target.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace lunkeeper::iscsi {
namespace {

constexpr uint32_t kSegment = 16384;  // MaxRecvDataSegmentLength: writes beyond it need R2Ts

bool ReadFully(int fd, void* to, size_t size) {
  return size == 0 || ::recv(fd, to, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

void PutText(std::vector<uint8_t>& data, const std::string& pair) {
  data.insert(data.end(), pair.begin(), pair.end());
  data.push_back(0);
}

std::string Named(const FakeCommand& command) {
  switch (command.operation) {
    case 0x88:
      return "read " + std::to_string(command.lba);
    case 0x8a:
      return "write " + std::to_string(command.lba);
    case 0x91:
      return "flush";
    case 0x42:
      return "unmap";
    case 0x93:
      return "write same " + std::to_string(command.lba);
    default:
      return "ask";
  }
}

}  // namespace

FakeTarget::FakeTarget(bool open)
    : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), medium_(8192 * kBlock) {
  sockaddr_in address{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
  socklen_t size = sizeof address;
  ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  if (open) Open();
}

void FakeTarget::Open() {
  ::listen(listener_.get(), 8);
  thread_ = std::thread([this] { Serve(); });
}

FakeTarget::~FakeTarget() {
  stop_ = true;
  ::shutdown(listener_.get(), SHUT_RDWR);
  Inject({});
  if (thread_.joinable()) thread_.join();
}

void FakeTarget::Change(const std::function<void(Traits&)>& change) {
  absl::MutexLock lock(&mutex_);
  change(traits_);
}

FakeTarget::Traits FakeTarget::traits() {
  absl::MutexLock lock(&mutex_);
  return traits_;
}

std::vector<std::string> FakeTarget::Events() {
  absl::MutexLock lock(&mutex_);
  return events_;
}

size_t FakeTarget::Count(const std::string& event) {
  const std::vector<std::string> events = Events();
  return static_cast<size_t>(std::count(events.begin(), events.end(), event));
}

void FakeTarget::Inject(const std::vector<uint8_t>& bytes) {
  absl::MutexLock lock(&mutex_);
  if (current_ < 0) return;
  if (bytes.empty()) {
    ::shutdown(current_, SHUT_RDWR);
  } else {
    ::send(current_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
}

char FakeTarget::At(uint64_t offset) {
  absl::MutexLock lock(&mutex_);
  return medium_[offset];
}

void FakeTarget::Note(const std::string& event) {
  absl::MutexLock lock(&mutex_);
  events_.push_back(event);
}

void FakeTarget::Serve() {
  while (!stop_) {
    UniqueFd connection(::accept(listener_.get(), nullptr, nullptr));
    if (!connection) return;
    ++connections_;
    {
      absl::MutexLock lock(&mutex_);
      current_ = connection.get();
    }
    if (!stop_) ServeConnection(connection.get());
    absl::MutexLock lock(&mutex_);
    current_ = -1;
  }
}

void FakeTarget::ServeConnection(int fd) {
  stat_sn_ = exp_cmd_sn_ = 1;
  aside_.clear();
  slow_.clear();
  while (const std::optional<Pdu> pdu = Next(fd)) {
    if (!Handle(fd, *pdu)) return;
  }
}

std::optional<FakeTarget::Pdu> FakeTarget::Read(int fd) {
  Pdu pdu;
  if (!ReadFully(fd, pdu.header.data(), kHeaderSize)) return std::nullopt;
  const uint32_t length = Get24(&pdu.header[kDataLengthAt]);
  pdu.data.resize(length + Padding(length));
  if (!ReadFully(fd, pdu.data.data(), pdu.data.size())) return std::nullopt;
  pdu.data.resize(length);
  return pdu;
}

std::optional<FakeTarget::Pdu> FakeTarget::Next(int fd) {
  if (aside_.empty()) return Read(fd);
  Pdu pdu = std::move(aside_.front());
  aside_.pop_front();
  return pdu;
}

bool FakeTarget::Handle(int fd, const Pdu& pdu) {
  switch (pdu.header[0] & kOpcodeMask) {
    case kLoginRequest:
      return HandleLogin(fd, pdu);
    case kTaskManagement:
      return HandleReset(fd, pdu);
    case kScsiCommand:
      return HandleCommand(fd, pdu);
    case kLogoutRequest:
      return HandleLogout(fd, pdu);
    case kNopOut:
      return HandlePing(fd, pdu);
    default:
      return false;
  }
}

bool FakeTarget::HandleLogout(int fd, const Pdu& pdu) {
  Note("logout");
  if (traits().logout_silent) return true;
  Header answer = Respond(kLogoutResponse, pdu, true);
  Put16(&answer[kLogoutTimeToWaitAt], traits().seconds_to_wait);
  return Send(fd, answer, {});
}

bool FakeTarget::HandlePing(int fd, const Pdu& pdu) {
  Note("ping");
  if (Get32(&pdu.header[kTagAt]) == kNoTag) return true;
  Header answer = Respond(kNopIn, pdu, true);
  Put32(&answer[kTargetTagAt], kNoTag);
  if (!Send(fd, answer, {})) return false;
  for (size_t i = 0; i < slow_.size();) {
    if (--slow_[i].pings > 0) {
      ++i;
      continue;
    }
    const Slow slow = std::move(slow_[i]);
    slow_.erase(slow_.begin() + static_cast<long>(i));
    const bool reset = (slow.pdu.header[0] & kOpcodeMask) == kTaskManagement;
    const bool good = reset ? FinishReset(fd, slow.pdu)
                      : slow.reaction.status != 0
                          ? SendStatus(fd, slow.pdu, slow.reaction)
                          : Execute(fd, slow.pdu, slow.held.command, slow.held.data, Reaction::kAnswer);
    if (!good) return false;
  }
  return true;
}

bool FakeTarget::HandleLogin(int fd, const Pdu& pdu) {
  const Traits now = traits();
  if (std::vector<uint8_t> answer = now.login_answer; !answer.empty()) {
    std::copy_n(&pdu.header[kTagAt], 4, &answer[kTagAt]);
    return ::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL) > 0;
  }
  Header header = Respond(kLoginResponse, pdu, true);
  header[1] = pdu.header[1];
  std::vector<uint8_t> text;
  header[36] = now.login_class;
  header[37] = now.login_detail;
  if (now.login_class != 0) {
    Note("refused login");
    if (!now.moved_to.empty()) PutText(text, "TargetAddress=" + now.moved_to);
    Send(fd, header, text);
    return false;
  }
  if ((pdu.header[1] & 0x0c) == 0) {
    PutText(text, "AuthMethod=None");
  } else {
    PutText(text, "MaxRecvDataSegmentLength=" + std::to_string(kSegment));
    PutText(text, "MaxBurstLength=1048576");
    PutText(text, "InitialR2T=Yes");
    PutText(text, "ImmediateData=Yes");
    ++sessions_;
    Note("login");
  }
  return Send(fd, header, text);
}

bool FakeTarget::HandleReset(int fd, const Pdu& pdu) {
  const Traits now = traits();
  if (now.reset_drops) return false;
  if (now.reset_silent) return React(fd, pdu, {}, Reaction{Reaction::kSilence});
  if (now.reset_pings == 0) return FinishReset(fd, pdu);
  slow_.push_back({now.reset_pings, pdu, {}, {}});
  return true;
}

bool FakeTarget::FinishReset(int fd, const Pdu& pdu) {
  for (const Held& held : held_) Apply(held.command, held.data);
  held_.clear();
  Note("reset");
  Header header = Respond(kTaskManagementResponse, pdu, true);
  header[2] = traits().reset_response;
  return Send(fd, header, {});
}

bool FakeTarget::HandleCommand(int fd, const Pdu& pdu) {
  if (Get32(&pdu.header[kCmdSnAt]) != exp_cmd_sn_) {
    Note("wrong CmdSN");
    return false;
  }
  ++exp_cmd_sn_;
  const uint8_t* cdb = &pdu.header[kCdbAt];
  FakeCommand command{cdb[0], Get64(cdb + 2), Get32(cdb + 10), sessions_, (cdb[1] & 8) != 0};
  const Traits now = traits();
  const Reaction reaction = now.script ? now.script(command) : Reaction{};
  Note(Named(command));
  if (reaction.kind == Reaction::kTell && !Tell(fd, pdu, reaction.raw)) return false;
  const bool at_once = reaction.kind == Reaction::kAnswer || reaction.kind == Reaction::kTell ||
                       reaction.kind == Reaction::kTrickle;
  if (!at_once && reaction.kind != Reaction::kHold && reaction.kind != Reaction::kPings)
    return React(fd, pdu, command, reaction);
  std::vector<uint8_t> data = pdu.data;
  if (!GatherData(fd, pdu, data)) return false;
  if (at_once) return Execute(fd, pdu, command, data, reaction.kind);
  if (reaction.kind == Reaction::kPings) {
    slow_.push_back({reaction.pings, pdu, {command, data}, reaction});
  } else {
    held_.push_back({command, data});
  }
  return true;
}

// `message`: header and data, of which only the numbers are missing.
bool FakeTarget::Tell(int fd, const Pdu& pdu, const std::vector<uint8_t>& message) {
  Header header = Respond(kAsyncMessage, pdu, true);
  Put32(&header[kTagAt], kNoTag);
  std::copy_n(message.begin() + 36, 8, header.begin() + 36);
  return Send(fd, header, {message.begin() + kHeaderSize, message.end()});
}

// Asks for what did not come with the command. Other commands that arrive meanwhile are set aside.
bool FakeTarget::GatherData(int fd, const Pdu& command, std::vector<uint8_t>& data) {
  if ((command.header[1] & kCommandWrite) == 0) return true;
  const uint32_t total = Get32(&command.header[kExpectedLengthAt]);
  if (data.size() >= total) return true;
  Header r2t = Respond(kR2t, command, false);
  Put32(&r2t[kTargetTagAt], 77);
  Put32(&r2t[kBufferOffsetAt], static_cast<uint32_t>(data.size()));
  Put32(&r2t[kR2tLengthAt], static_cast<uint32_t>(total - data.size()));
  if (!Send(fd, r2t, {})) return false;
  while (data.size() < total) {
    std::optional<Pdu> pdu = Read(fd);
    if (!pdu) return false;
    if ((pdu->header[0] & kOpcodeMask) != kDataOut) {
      aside_.push_back(std::move(*pdu));
      continue;
    }
    if (Get32(&pdu->header[kTargetTagAt]) != 77 || Get32(&pdu->header[kBufferOffsetAt]) != data.size())
      return false;
    data.insert(data.end(), pdu->data.begin(), pdu->data.end());
    if (((pdu->header[1] & kFinal) != 0) != (data.size() == total)) return false;
  }
  return true;
}

bool FakeTarget::React(int fd, const Pdu& pdu, const FakeCommand& command, const Reaction& reaction) {
  switch (reaction.kind) {
    case Reaction::kStatus:
      return SendStatus(fd, pdu, reaction);
    case Reaction::kHalf:
      return SendData(fd, pdu, std::vector<uint8_t>(size_t{command.blocks} * kBlock, 'x'), reaction.kind);
    case Reaction::kRaw:
      return ::send(fd, reaction.raw.data(), reaction.raw.size(), MSG_NOSIGNAL) > 0;
    case Reaction::kSilence: {
      char byte;
      while (::recv(fd, &byte, 1, 0) > 0) {
      }
      return false;
    }
    default:
      return false;
  }
}

bool FakeTarget::Execute(int fd, const Pdu& pdu, const FakeCommand& command, const std::vector<uint8_t>& data,
                         Reaction::Kind how) {
  if (command.operation == 0x88) {
    std::vector<uint8_t> out(size_t{command.blocks} * kBlock);
    {
      absl::MutexLock lock(&mutex_);
      std::copy_n(medium_.begin() + static_cast<long>(command.lba * kBlock), out.size(), out.begin());
    }
    return SendData(fd, pdu, out, how);
  }
  if ((pdu.header[1] & kCommandRead) != 0) {
    std::vector<uint8_t> answer = AnswerOf(traits(), &pdu.header[kCdbAt]);
    if (answer.empty()) return SendStatus(fd, pdu, Sense(5, 0x24));
    answer.resize(std::min<size_t>(answer.size(), Get32(&pdu.header[kExpectedLengthAt])));
    return SendData(fd, pdu, answer, how);
  }
  Apply(command, data);
  return SendStatus(fd, pdu, {});
}

void FakeTarget::Apply(const FakeCommand& command, const std::vector<uint8_t>& data) {
  absl::MutexLock lock(&mutex_);
  const auto at = medium_.begin() + static_cast<long>(command.lba * kBlock);
  if (command.operation == 0x8a) std::copy(data.begin(), data.end(), at);
  if (command.operation == 0x93) std::fill_n(at, size_t{command.blocks} * kBlock, '\0');
  if (command.operation == 0x8a) events_.push_back("apply " + std::to_string(command.lba));
}

bool FakeTarget::SendData(int fd, const Pdu& pdu, const std::vector<uint8_t>& data, Reaction::Kind how) {
  Header header = Respond(kDataIn, pdu, true);
  header[1] = kFinal | kDataInStatus;
  if (how != Reaction::kHalf && how != Reaction::kTrickle) return Send(fd, header, data);
  Put24(&header[kDataLengthAt], static_cast<uint32_t>(data.size()));
  ::send(fd, header.data(), header.size(), MSG_NOSIGNAL);
  if (how == Reaction::kHalf) return ::send(fd, data.data(), data.size() / 2, MSG_NOSIGNAL), false;
  for (size_t at = 0; at < data.size(); at += data.size() / 16) {
    if (::send(fd, data.data() + at, data.size() / 16, MSG_NOSIGNAL) < 0) return false;
    ::usleep(60'000);
  }
  return true;
}

bool FakeTarget::SendStatus(int fd, const Pdu& pdu, const Reaction& reaction) {
  Header header = Respond(kScsiResponse, pdu, true);
  header[3] = reaction.status;
  std::vector<uint8_t> sense;
  if (reaction.status == 2) {
    sense.resize(20);
    sense[1] = 18;
    sense[2] = reaction.deferred ? 0x71 : 0x70;
    sense[4] = reaction.key;
    sense[14] = reaction.asc;
    sense[15] = reaction.ascq;
  }
  return Send(fd, header, sense);
}

Header FakeTarget::Respond(Opcode opcode, const Pdu& pdu, bool status) {
  Header header{};
  header[0] = opcode;
  header[1] = kFinal;
  std::copy_n(&pdu.header[kTagAt], 4, &header[kTagAt]);
  Put32(&header[kStatSnAt], status ? stat_sn_++ : stat_sn_);
  Put32(&header[kExpCmdSnAt], exp_cmd_sn_);
  Put32(&header[kMaxCmdSnAt], exp_cmd_sn_ + traits().window - 1);
  return header;
}

bool FakeTarget::Send(int fd, Header header, const std::vector<uint8_t>& data) {
  Put24(&header[kDataLengthAt], static_cast<uint32_t>(data.size()));
  std::vector<uint8_t> bytes(header.begin(), header.end());
  bytes.insert(bytes.end(), data.begin(), data.end());
  bytes.resize(bytes.size() + Padding(static_cast<uint32_t>(data.size())));
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

}  // namespace lunkeeper::iscsi
