// Licensed under the Apache License, Version 2.0.

import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.FileSystemCatalog;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.Path;
import org.apache.paimon.options.Options;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.TableCommitImpl;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.SnapshotNotExistPlan;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.table.source.StreamTableScan;
import org.apache.paimon.table.source.TableRead;
import org.apache.paimon.table.source.TableScan;
import org.apache.paimon.types.DataTypeJsonParser;

/** Writes and reads tables by the Java API of Paimon, on one thread. */
public final class Api extends Program {
    private static final Map<String, String> FIRST = Map.of("scan.mode", "from-snapshot", "scan.snapshot-id", "1");

    private final IOManager ioManager;
    private final Map<String, Input> inputs = new HashMap<>();
    private long identifier;

    private Api() throws IOException {
        ioManager = IOManager.create(Files.createTempDirectory("api").toString());
    }

    public static void main(String[] arguments) throws IOException {
        new Api().run();
    }

    @Override
    void obey(JsonNode command, ObjectNode reply) throws Exception {
        switch (command.get("do").asText()) {
            case "ready" -> {}
            case "create" -> create(command);
            case "input" -> inputs.put(command.get("name").asText(), new Input(command));
            case "forget" -> inputs.clear();
            case "write" -> write(command, reply);
            case "read" -> read(command, reply);
            case "state" -> state(command, reply);
            case "follow" -> follow(command, reply);
            default -> throw new IllegalArgumentException(command.toString());
        }
    }

    private static Catalog catalog(JsonNode command) throws Exception {
        Path warehouse = new Path(command.get("warehouse").asText());
        BufferedFileIO fileIO = new BufferedFileIO();
        fileIO.checkOrMkdirs(warehouse);
        return new FileSystemCatalog(fileIO, warehouse, CatalogContext.create(new Options()));
    }

    private static FileStoreTable table(JsonNode command, Map<String, String> options) throws Exception {
        Identifier name = Identifier.create("db", command.get("table").asText());
        return ((FileStoreTable) catalog(command).getTable(name)).copyWithoutTimeTravel(options);
    }

    /** warehouse; table; columns: [[name, type, ...]]; primary_keys; options. */
    private static void create(JsonNode command) throws Exception {
        Schema.Builder schema = Schema.newBuilder();
        for (JsonNode column : command.get("columns")) {
            if (!column.get(0).asText().equals("_kind")) {
                schema.column(column.get(0).asText(), DataTypeJsonParser.parseDataType(column.get(1)));
            }
        }
        List<String> keys = new ArrayList<>();
        command.get("primary_keys").forEach(key -> keys.add(key.asText()));
        Map<String, String> options = new HashMap<>();
        command.get("options").fields().forEachRemaining(each -> options.put(each.getKey(), each.getValue().asText()));
        Catalog catalog = catalog(command);
        catalog.createDatabase("db", true);
        Identifier name = Identifier.create("db", command.get("table").asText());
        catalog.createTable(name, schema.primaryKey(keys).options(options).build(), false);
    }

    /** input, first, rows, commits: rows of an input, in commits of equal size. */
    private void write(JsonNode command, ObjectNode reply) throws Exception {
        Input input = inputs.get(command.get("input").asText());
        int next = command.get("first").asInt();
        int each = command.get("rows").asInt() / command.get("commits").asInt();
        FileStoreTable table = table(command, Map.of());
        try (TableWriteImpl<?> write = table.newWrite("java");
                TableCommitImpl commit = table.newCommit("java")) {
            write.withIOManager(IOManager.create(ioManager.tempDirs()));
            for (int number = 0; number < command.get("commits").asInt(); number++) {
                for (int end = next + each; next < end; next++) {
                    write.write(input.row(next));
                }
                commit.commit(++identifier, write.prepareCommit(true, identifier));
            }
        }
        reply.put("rows", command.get("rows").asInt());
    }

    /** checked: all changes from the first snapshot up to the last one. */
    private void read(JsonNode command, ObjectNode reply) throws Exception {
        FileStoreTable table = table(command, FIRST);
        double clock = clock();
        double processor = processor();
        Tally tally = new Tally(table.rowType(), command.get("checked").asBoolean(), false, "");
        ReadBuilder builder = table.newReadBuilder();
        StreamTableScan scan = builder.newStreamScan();
        TableRead read = builder.newRead();
        boolean ended = false;
        while (!ended) {
            // The first plan only finds the place to begin at.
            Long before = scan.checkpoint();
            TableScan.Plan plan = scan.plan();
            readAll(read, plan.splits(), tally);
            ended = plan instanceof SnapshotNotExistPlan && Objects.equals(before, scan.checkpoint());
        }
        Tally.report(List.of(tally), clock, processor, reply);
    }

    /** checked: the rows of the latest snapshot. */
    private void state(JsonNode command, ObjectNode reply) throws Exception {
        FileStoreTable table = table(command, Map.of());
        double clock = clock();
        double processor = processor();
        Tally tally = new Tally(table.rowType(), command.get("checked").asBoolean(), false, "");
        ReadBuilder builder = table.newReadBuilder();
        TableRead read = builder.newRead().withIOManager(ioManager);
        readAll(read, builder.newScan().plan().splits(), tally);
        Tally.report(List.of(tally), clock, processor, reply);
    }

    /** commits, poll: when the rows of each commit came, by a reader that looks every so many milliseconds. */
    private void follow(JsonNode command, ObjectNode reply) throws Exception {
        FileStoreTable table = table(command, FIRST);
        Tally tally = new Tally(table.rowType(), false, true, command.get("signal").asText());
        ReadBuilder builder = table.newReadBuilder();
        StreamTableScan scan = builder.newStreamScan();
        TableRead read = builder.newRead();
        while (tally.commits().size() < command.get("commits").asInt()) {
            TableScan.Plan plan = scan.plan();
            readAll(read, plan.splits(), tally);
            if (plan instanceof SnapshotNotExistPlan) {
                Thread.sleep(command.get("poll").asInt());
            }
        }
        Tally.report(List.of(tally), clock(), processor(), reply);
    }

    private static void readAll(TableRead read, List<Split> splits, Tally tally) throws IOException {
        for (Split split : splits) {
            try (RecordReader<InternalRow> reader = read.createReader(split)) {
                RecordReader.RecordIterator<InternalRow> batch = reader.readBatch();
                for (; batch != null; batch = reader.readBatch()) {
                    for (InternalRow row = batch.next(); row != null; row = batch.next()) {
                        tally.add(row);
                    }
                    batch.releaseBatch();
                }
            }
        }
    }
}
