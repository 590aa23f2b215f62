// Licensed under the Apache License, Version 2.0.

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.types.RowType;

/** Rows that one thread has read: how many, the checksum of `benchmarks/public/rows.py`, when which commit was seen. */
final class Tally {
    private final RowType type;
    private final boolean checked;
    private final boolean timed;
    private final String signal;
    private final Map<Long, Long> seen = new ConcurrentHashMap<>();
    private final AtomicLong published = new AtomicLong();
    private long rows;
    private long sum;
    private long last = -1;
    private volatile double firstClock;
    private double firstProcessor;

    /**
     * @param checked whether the checksum is made
     * @param timed whether the first column is a commit's number, whose first row's time is kept
     * @param signal a file that is made when the first row has come; empty: none
     */
    Tally(RowType type, boolean checked, boolean timed, String signal) {
        this.type = type;
        this.checked = checked;
        this.timed = timed;
        this.signal = signal;
    }

    /** Count a row without a look at it. */
    void count() {
        if (rows == 0) {
            firstProcessor = Program.processor();
            firstClock = Program.clock();
        }
        published.lazySet(++rows);
    }

    void add(InternalRow row) throws IOException {
        if (checked) {
            sum += (1 + row.getRowKind().toByteValue()) * sum(row);
        }
        if (timed && row.getLong(0) != last) {
            last = row.getLong(0);
            seen.putIfAbsent(last, System.currentTimeMillis());
        }
        if (rows == 0 && !signal.isEmpty()) {
            // Another thread, which has a tally of its own, may have made it.
            Files.write(Path.of(signal), new byte[0]);
        }
        count();
    }

    long rows() {
        return published.get();
    }

    Set<Long> commits() {
        return seen.keySet();
    }

    private long sum(InternalRow row) {
        long found = 0;
        for (int field = 0; field < type.getFieldCount(); field++) {
            if (row.isNullAt(field)) {
                continue;
            }
            switch (type.getTypeAt(field).getTypeRoot()) {
                case INTEGER, DATE -> found += row.getInt(field);
                case BIGINT -> found += row.getLong(field);
                case DOUBLE -> found += (long) (row.getDouble(field) * (1 << 20));
                case VARCHAR -> {
                    CRC32 crc = new CRC32();
                    crc.update(row.getString(field).toBytes());
                    found += crc.getValue();
                }
                case TIMESTAMP_WITHOUT_TIME_ZONE -> found += row.getTimestamp(field, 3).getMillisecond();
                default -> throw new IllegalArgumentException(type.getTypeAt(field).toString());
            }
        }
        return found;
    }

    /** What several threads have read since a command began. */
    static void report(Iterable<Tally> tallies, double clock, double processor, ObjectNode reply) {
        long rows = 0;
        long sum = 0;
        Tally first = null;
        ObjectNode seen = reply.putObject("seen");
        for (Tally each : tallies) {
            rows += each.rows();
            sum += each.sum;
            if (each.rows() > 0 && (first == null || each.firstClock < first.firstClock)) {
                first = each;
            }
            each.seen.forEach((number, time) -> seen.put(number.toString(), Math.min(time,
                    seen.has(number.toString()) ? seen.get(number.toString()).asLong() : Long.MAX_VALUE)));
        }
        reply.put("rows", rows).put("checksum", sum);
        if (first != null) {
            reply.put("first_clock", first.firstClock - clock).put("first_processor", first.firstProcessor - processor);
        }
    }
}
