// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/telemetry/tracer.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include <memory>
#include <string>

namespace loci {
namespace {

class TracerTest : public testing::Test {
 protected:
  SystemClock clock_;
  std::shared_ptr<spdlog::logger> log_ =
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  TraceExporter exporter_{{}, {}, clock_, [](std::string, Nanos) { return PostAnswer(); }, log_};
};

TEST_F(TracerTest, ContinuesTheTraceOfWhoeverAsksAndObeysIt) {
  const std::string asked = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0";
  Tracer none(exporter_, {.share = 0}), all(exporter_, {.share = 1});
  const TracedRequest sampled = none.begin(asked + "1", 5), unsampled = all.begin(asked + "0", 5);
  EXPECT_TRUE(sampled.context.is_sampled);
  EXPECT_FALSE(unsampled.context.is_sampled);
  EXPECT_EQ(to_hex(sampled.context.trace), "4bf92f3577b34da6a3ce929d0e0e4736");
  ASSERT_TRUE(sampled.parent);
  EXPECT_EQ(to_hex(*sampled.parent), "00f067aa0ba902b7");
  EXPECT_NE(sampled.context.span, *sampled.parent);
  EXPECT_EQ(sampled.begin, 5);
}

TEST_F(TracerTest, BeginsATraceOfItsOwnWhereThereIsNoValidOne) {
  Tracer none(exporter_, {.share = 0}), all(exporter_, {.share = 1});
  for (const char* asked : {"", "00-x", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}) {
    EXPECT_FALSE(none.begin(asked, 0).context.is_sampled);
    const TracedRequest traced = all.begin(asked, 0);
    EXPECT_TRUE(traced.context.is_sampled);
    EXPECT_FALSE(traced.parent);
    EXPECT_NE(to_hex(traced.context.trace), "4bf92f3577b34da6a3ce929d0e0e4736");
  }
}

TEST_F(TracerTest, ChildrenAreBelowTheirSpan) {
  Tracer tracer(exporter_, {});
  const TracedRequest traced = tracer.begin("", 1), child = tracer.begin_child(traced.context, 2);
  EXPECT_EQ(child.context.trace, traced.context.trace);
  EXPECT_EQ(child.parent, traced.context.span);
  const TraceSpan span = Tracer::span_of(child, SpanKind::kClient, "x", 3);
  EXPECT_EQ(span.id, child.context.span);
  EXPECT_EQ(span.parent, traced.context.span);
  EXPECT_EQ(span.begin, 2);
  EXPECT_EQ(span.end, 3);
}

}  // namespace
}  // namespace loci
