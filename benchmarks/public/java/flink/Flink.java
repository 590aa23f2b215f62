// Licensed under the Apache License, Version 2.0.

import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.data.RowData;
import org.apache.paimon.Snapshot;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.FileSystemCatalog;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.flink.FlinkRowWrapper;
import org.apache.paimon.flink.source.FlinkSourceBuilder;
import org.apache.paimon.fs.Path;
import org.apache.paimon.options.Options;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.SnapshotManager;

/**
 * Streams of Flink in this JVM, two at a time. A job never ends by itself: a command that starts one is over when all
 * rows have come, and `stop` ends it.
 */
public final class Flink extends Program {
    private static final List<Tally> TALLIES = new CopyOnWriteArrayList<>();
    private static final int PATIENCE = 300;

    private JobClient job;
    private long lastCount = -1;
    private double lastTime;

    public static void main(String[] arguments) throws IOException {
        new Flink().run();
    }

    @Override
    void obey(JsonNode command, ObjectNode reply) throws Exception {
        switch (command.get("do").asText()) {
            case "ready" -> StreamTableEnvironment.create(environment(Map.of()));
            case "read" -> read(command, false, reply);
            case "follow" -> read(command, true, reply);
            case "copy" -> copy(command, reply);
            case "stop" -> stop();
            default -> throw new IllegalArgumentException(command.toString());
        }
    }

    private static StreamExecutionEnvironment environment(Map<String, String> settings) {
        Map<String, String> found = new HashMap<>(settings);
        for (String each : new String[] {"jobmanager.bind-host", "taskmanager.bind-host", "rest.bind-address"}) {
            found.put(each, "127.0.0.1");
        }
        found.put("rest.address", "127.0.0.1");
        found.put("parallelism.default", "2");
        // A job that fails says why at once.
        found.put("restart-strategy.type", "none");
        // Operators hand rows to the next one as they are, without a copy.
        found.put("pipeline.object-reuse", "true");
        found.put("table.local-time-zone", "UTC");
        return StreamExecutionEnvironment.getExecutionEnvironment(Configuration.fromMap(found));
    }

    private static FileStoreTable table(JsonNode command, String name) throws Exception {
        Path warehouse = new Path(command.get("warehouse").asText());
        Catalog catalog =
                new FileSystemCatalog(new BufferedFileIO(), warehouse, CatalogContext.create(new Options()));
        return (FileStoreTable) catalog.getTable(Identifier.create("db", name));
    }

    /** table, rows or commits, checked, poll (milliseconds): changes from the first snapshot, until there are as many. */
    private void read(JsonNode command, boolean timed, ObjectNode reply) throws Exception {
        Map<String, String> options =
                Map.of(
                        "scan.mode", "from-snapshot",
                        "scan.snapshot-id", "1",
                        "continuous.discovery-interval", command.get("poll").asText() + " ms");
        FileStoreTable table = table(command, command.get("table").asText()).copyWithoutTimeTravel(options);
        double clock = clock();
        double processor = processor();
        TALLIES.clear();
        StreamExecutionEnvironment environment = environment(Map.of());
        new FlinkSourceBuilder(table)
                .sourceName("source")
                .sourceBounded(false)
                .env(environment)
                .build()
                .addSink(new Counted(table.rowType(), command.path("checked").asBoolean(), timed, signal(command)));
        job = environment.executeAsync();
        long expected = command.get(timed ? "commits" : "rows").asLong();
        for (long count = 0; count < expected; count = timed ? commits() : rows()) {
            pause(2, count);
        }
        Tally.report(TALLIES, clock, processor, reply);
    }

    private static String signal(JsonNode command) {
        return command.path("signal").asText("");
    }

    private static long rows() {
        return TALLIES.stream().mapToLong(Tally::rows).sum();
    }

    private static long commits() {
        return TALLIES.stream().flatMap(each -> each.commits().stream()).distinct().count();
    }

    /** Lets the job work; fails if it has ended, or if nothing has come for a while. */
    private void pause(int milliseconds, long count) throws Exception {
        if (count != lastCount) {
            lastCount = count;
            lastTime = clock();
        } else if (clock() - lastTime > PATIENCE) {
            throw new IllegalStateException("nothing has come for " + PATIENCE + " s after " + count);
        }
        if (job.getJobExecutionResult().isDone()) {
            job.getJobExecutionResult().get();
            throw new IllegalStateException("the job has ended");
        }
        Thread.sleep(milliseconds);
    }

    /** columns, source, sink, rows, interval: a job that inserts columns of a table into another one, until all came. */
    private void copy(JsonNode command, ObjectNode reply) throws Exception {
        Map<String, String> settings = Map.of("execution.checkpointing.interval", command.get("interval").asText());
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment(settings));
        String warehouse = command.get("warehouse").asText();
        tables.executeSql("CREATE CATALOG lake WITH ('type'='paimon', 'warehouse'='" + warehouse + "')");
        String sink = command.get("sink").asText();
        job = tables.executeSql(String.format(
                        "INSERT INTO lake.db.%s SELECT %s FROM lake.db.%s",
                        sink, command.get("columns").asText(), command.get("source").asText()))
                .getJobClient()
                .get();
        SnapshotManager snapshots = table(command, sink).snapshotManager();
        long count = 0;
        while (count < command.get("rows").asLong()) {
            pause(20, count);
            Snapshot latest = snapshots.latestSnapshotFromFileSystem();
            count = latest == null ? 0 : latest.totalRecordCount();
        }
        reply.put("rows", count);
    }

    private void stop() throws Exception {
        lastCount = -1;
        if (job != null) {
            job.cancel().get();
            job.getJobExecutionResult().handle((result, cancelled) -> 0).get();
            job = null;
        }
    }

    /** Counts rows; looks at them only if it has to. */
    private static final class Counted extends RichSinkFunction<RowData> {
        private final RowType type;
        private final boolean checked;
        private final boolean timed;
        private final String signal;
        private transient Tally tally;

        Counted(RowType type, boolean checked, boolean timed, String signal) {
            this.type = type;
            this.checked = checked;
            this.timed = timed;
            this.signal = signal;
        }

        @Override
        public void open(OpenContext context) {
            tally = new Tally(type, checked, timed, signal);
            TALLIES.add(tally);
        }

        @Override
        public void invoke(RowData row, Context context) throws IOException {
            if (checked || timed) {
                tally.add(new FlinkRowWrapper(row));
            } else {
                tally.count();
            }
        }
    }
}
