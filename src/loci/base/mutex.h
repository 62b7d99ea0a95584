// SPDX-License-Identifier: Apache-2.0
// A mutex whose use the compiler checks. Clang reads the annotations (its Thread Safety Analysis); other
// compilers see std::mutex and nothing else.
//
//   class Counter {
//    public:
//     void add() EXCLUDES(mutex_) {
//       const MutexLock lock(mutex_);
//       ++count_;                                  // without the lock this does not compile
//       told_.notify_all();
//     }
//     void wait() EXCLUDES(mutex_) {
//       MutexLock lock(mutex_);
//       told_.wait(lock, [this]() REQUIRES(mutex_) { return count_ > 0; });
//     }
//
//    private:
//     Mutex mutex_;
//     Condition told_;
//     int count_ GUARDED_BY(mutex_) = 0;
//   };
//
// A thread holds one mutex at a time. The few mutexes under which others are taken are declared as such
// (LockOrder), and docs/ARCHITECTURE.md lists them. Builds with sanitizers check the order at every lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "loci/base/check.h"

#if defined(__clang__)
#define LOCI_THREAD_ANNOTATION(attribute) __attribute__((attribute))
#else
#define LOCI_THREAD_ANNOTATION(attribute)
#endif

// For a field: it is read and written with the mutex held.
#define GUARDED_BY(mutex) LOCI_THREAD_ANNOTATION(guarded_by(mutex))
// For a pointer: what it points to is read and written with the mutex held.
#define PT_GUARDED_BY(mutex) LOCI_THREAD_ANNOTATION(pt_guarded_by(mutex))
// For a function or a lambda: the caller holds the mutex.
#define REQUIRES(...) LOCI_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
// For a function: it takes the mutex itself, so the caller does not hold it.
#define EXCLUDES(...) LOCI_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// For a function that returns a mutex: it returns this one.
#define RETURNS_MUTEX(mutex) LOCI_THREAD_ANNOTATION(lock_returned(mutex))

namespace loci {

// Which mutexes may be taken while this one is held: only those further down in this list.
enum class LockOrder : std::uint8_t {
  kOuter,   // functions called under it take other mutexes
  kInner,   // the usual case: no mutex is taken under it
  kDriver,  // the simulated device's, which stands for a mutex inside a driver
};

// Records which mutexes a thread holds, in builds with sanitizers; empty in others.
class LockRank {
 public:
#ifdef LOCI_SANITIZED
  explicit LockRank(LockOrder order) : bit_(1u << static_cast<unsigned>(order)) {}
  void note_locked() const {
    LOCI_CHECK(held_ < bit_, "no mutex is taken under one of its own order or of one further down");
    held_ |= bit_;
  }
  void note_unlocked() const { held_ &= ~bit_; }
  void check_held() const { LOCI_CHECK((held_ & bit_) != 0, "the mutex is held"); }

 private:
  static inline constinit thread_local unsigned held_ = 0;  // a bit for each order of which a mutex is held
  const unsigned bit_;
#else
  explicit LockRank(LockOrder) {}
  void note_locked() const {}
  void note_unlocked() const {}
  void check_held() const {}
#endif
};

class LOCI_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  explicit Mutex(LockOrder order = LockOrder::kInner) : rank_(order) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // For code that runs with the mutex held although the compiler cannot see it, such as a function that was
  // passed as an argument.
  void assert_held() const LOCI_THREAD_ANNOTATION(assert_capability(this)) { rank_.check_held(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
  [[no_unique_address]] LockRank rank_;
};

// Holds a mutex from its construction to its end, except between unlock() and lock().
class LOCI_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) LOCI_THREAD_ANNOTATION(acquire_capability(mutex))
      : mutex_(mutex), lock_(mutex.mutex_, std::defer_lock) {
    mutex_.rank_.note_locked();
    lock_.lock();
  }
  ~MutexLock() LOCI_THREAD_ANNOTATION(release_capability()) {
    if (lock_.owns_lock()) mutex_.rank_.note_unlocked();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() LOCI_THREAD_ANNOTATION(release_capability()) {
    lock_.unlock();
    mutex_.rank_.note_unlocked();
  }
  void lock() LOCI_THREAD_ANNOTATION(acquire_capability()) {
    mutex_.rank_.note_locked();
    lock_.lock();
  }

 private:
  friend class Condition;
  const Mutex& mutex_;
  std::unique_lock<std::mutex> lock_;
};

// A mutex that many readers or one writer may hold.
class LOCI_THREAD_ANNOTATION(capability("mutex")) SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  // True: the calling thread writes from now on, and gives a WriteLock the mutex to release. Waits for
  // nobody.
  bool try_lock() LOCI_THREAD_ANNOTATION(try_acquire_capability(true)) {
    rank_.note_locked();
    const bool is_locked = mutex_.try_lock();
    if (!is_locked) rank_.note_unlocked();
    return is_locked;
  }

 private:
  friend class ReadLock;
  friend class WriteLock;
  std::shared_mutex mutex_;
  LockRank rank_{LockOrder::kInner};
};

class LOCI_THREAD_ANNOTATION(scoped_lockable) ReadLock {
 public:
  explicit ReadLock(SharedMutex& mutex) LOCI_THREAD_ANNOTATION(acquire_shared_capability(mutex))
      : mutex_(mutex) {
    mutex_.rank_.note_locked();
    mutex_.mutex_.lock_shared();
  }
  ~ReadLock() LOCI_THREAD_ANNOTATION(release_capability()) {
    mutex_.mutex_.unlock_shared();
    mutex_.rank_.note_unlocked();
  }
  ReadLock(const ReadLock&) = delete;
  ReadLock& operator=(const ReadLock&) = delete;

 private:
  SharedMutex& mutex_;
};

class LOCI_THREAD_ANNOTATION(scoped_lockable) WriteLock {
 public:
  explicit WriteLock(SharedMutex& mutex) LOCI_THREAD_ANNOTATION(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.rank_.note_locked();
    mutex_.mutex_.lock();
  }
  // Of a mutex that try_lock() has locked.
  WriteLock(SharedMutex& mutex, std::adopt_lock_t) LOCI_THREAD_ANNOTATION(requires_capability(mutex))
      : mutex_(mutex) {}
  ~WriteLock() LOCI_THREAD_ANNOTATION(release_capability()) {
    mutex_.mutex_.unlock();
    mutex_.rank_.note_unlocked();
  }
  WriteLock(const WriteLock&) = delete;
  WriteLock& operator=(const WriteLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// A condition that threads wait for. `ready` is called with the lock held and must be annotated so: [this]()
// REQUIRES(mutex_) {...}.
class Condition {
 public:
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

  // May return for no reason.
  void wait(MutexLock& lock) { condition_.wait(lock.lock_); }
  template <class Ready>
  void wait(MutexLock& lock, Ready ready) {
    condition_.wait(lock.lock_, std::move(ready));
  }
  template <class Clock, class Duration>
  void wait_until(MutexLock& lock, std::chrono::time_point<Clock, Duration> until) {
    condition_.wait_until(lock.lock_, until);
  }
  // False: the time has come before it was ready.
  template <class Clock, class Duration, class Ready>
  bool wait_until(MutexLock& lock, std::chrono::time_point<Clock, Duration> until, Ready ready) {
    return condition_.wait_until(lock.lock_, until, std::move(ready));
  }
  template <class Rep, class Period, class Ready>
  bool wait_for(MutexLock& lock, std::chrono::duration<Rep, Period> most, Ready ready) {
    return condition_.wait_for(lock.lock_, most, std::move(ready));
  }

 private:
  std::condition_variable condition_;
};

}  // namespace loci
