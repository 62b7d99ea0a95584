// SPDX-License-Identifier: Apache-2.0
// A part of something shared that everybody may read, and that one owner alone changes: the compiler refuses
// all others.
//
//     OwnedBy<Deadlines, Until> until;      anybody: until->at
//                                           Deadlines: until.change().at = 7
#pragma once

namespace loci {

// As thread-safe as the part, and costs nothing beside it.
template <class Owner, class Part>
class OwnedBy {
 public:
  const Part* operator->() const { return &part_; }
  const Part& operator*() const { return part_; }

 private:
  friend Owner;
  Part& change() { return part_; }

  Part part_;
};

}  // namespace loci
