import java.math.BigInteger;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.paimon.partition.PartitionTimeExtractor;
import org.apache.paimon.partition.actions.SuccessFileMarkDoneAction;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.table.FileStoreTable;

/** Partitions that expire, are marked as done, or name a time. */
final class Partitions {
    private Partitions() {}

    /** options: with `partition.expiration-*`. The reply holds the partitions that are dropped. */
    static void expire(FileStoreTable table, ObjectNode reply) {
        ArrayNode dropped = reply.putArray("partitions");
        List<Map<String, String>> expired = table.store().newPartitionExpire("expirer", table).expire(Long.MAX_VALUE);
        for (Map<String, String> each : expired == null ? List.<Map<String, String>>of() : expired) {
            ObjectNode partition = dropped.addObject();
            each.forEach(partition::put);
        }
    }

    /** partition: its path below the table. */
    static void markDone(FileStoreTable table, JsonNode command) throws Exception {
        try (SuccessFileMarkDoneAction action = new SuccessFileMarkDoneAction(table.fileIO(), table.location())) {
            action.markDone(command.get("partition").asText());
        }
    }

    /** asked: [[pattern, formatter, [key], [value]]]; times: epoch nanoseconds as texts, null for what is no time. */
    static void times(JsonNode command, ObjectNode reply) {
        ArrayNode times = reply.putArray("times");
        for (JsonNode each : command.get("asked")) {
            LocalDateTime time = null;
            try {
                time = new PartitionTimeExtractor(text(each.get(0)), text(each.get(1))).extract(texts(each.get(2)), texts(each.get(3)));
            } catch (RuntimeException noTime) {
                // As where partitions expire.
            }
            if (time == null) {
                times.addNull();
            } else {
                BigInteger second = BigInteger.valueOf(time.toEpochSecond(ZoneOffset.UTC));
                times.add(second.multiply(BigInteger.valueOf(1_000_000_000)).add(BigInteger.valueOf(time.getNano())).toString());
            }
        }
    }

    private static List<String> texts(JsonNode values) {
        List<String> found = new ArrayList<>();
        values.forEach(value -> found.add(text(value)));
        return found;
    }

    private static String text(JsonNode value) {
        return value.isNull() ? null : value.asText();
    }
}
