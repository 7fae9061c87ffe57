#pragma once
// A list of LunRequests through their own hooks: nothing allocates. A request is in one list at most.

#include "devices/iscsi/lun.h"

namespace lunkeeper::iscsi {

class RequestList {
 public:
  bool empty() const { return head_ == nullptr; }
  LunRequest* front() const { return head_; }

  void PushBack(LunRequest* request) {
    request->internal.prev = tail_;
    request->internal.next = nullptr;
    (tail_ == nullptr ? head_ : tail_->internal.next) = request;
    tail_ = request;
  }

  void Remove(LunRequest* request) {
    auto& hooks = request->internal;
    (hooks.prev == nullptr ? head_ : hooks.prev->internal.next) = hooks.next;
    (hooks.next == nullptr ? tail_ : hooks.next->internal.prev) = hooks.prev;
    hooks.prev = hooks.next = nullptr;
  }

  LunRequest* PopFront() {
    LunRequest* request = head_;
    Remove(request);
    return request;
  }

  // Puts all of `other` before what is here, in its order, and empties it.
  void Prepend(RequestList& other) {
    if (other.empty()) return;
    other.tail_->internal.next = head_;
    (head_ == nullptr ? tail_ : head_->internal.prev) = other.tail_;
    head_ = other.head_;
    other.head_ = other.tail_ = nullptr;
  }

 private:
  LunRequest* head_ = nullptr;
  LunRequest* tail_ = nullptr;
};

}  // namespace lunkeeper::iscsi
