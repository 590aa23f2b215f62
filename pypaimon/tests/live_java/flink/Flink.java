import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.SinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.RichSourceFunction;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;
import org.apache.paimon.flink.action.CompactAction;

/** Flink jobs on tables of Paimon in this JVM, by commands as JSON lines. Each job has a cluster of its own. */
public final class Flink {

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Feed> FEEDS = new ConcurrentHashMap<>();
    private static final Map<String, List<List<Object>>> FOLLOWED = new ConcurrentHashMap<>();
    private static final Map<String, JobClient> JOBS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null; ) {
            Map<String, Object> answer = new HashMap<>();
            try {
                obey(JSON.readTree(line), answer);
            } catch (Throwable error) {
                answer.put("error", described(error));
            }
            answers.println(JSON.writeValueAsString(answer));
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> described(Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null && cause.getCause() != cause) {
            cause = cause.getCause();
        }
        Map<String, Object> found = new HashMap<>();
        found.put("class", error.getClass().getName());
        found.put("message", String.valueOf(error.getMessage()));
        found.put("cause", cause.toString());
        found.put("trace", cause.getStackTrace().length == 0 ? "" : cause.getStackTrace()[0].toString());
        return found;
    }

    private static void obey(JsonNode command, Map<String, Object> answer) throws Exception {
        String name = command.path("name").asText();
        switch (command.get("do").asText()) {
            case "sql":
                answer.put("rows", sql(command));
                break;
            case "run":
                run(name, command);
                break;
            case "compact":
                compact(name, command);
                break;
            case "follow":
                follow(name, command);
                break;
            case "changes":
                answer.put("rows", changes(name));
                break;
            case "feed":
                FEEDS.put(name, new Feed(command.get("columns")));
                break;
            case "push":
                FEEDS.get(name).push(command.get("rows"));
                break;
            case "end":
                FEEDS.get(name).end();
                break;
            case "fail":
                FEEDS.get(name).fail();
                break;
            case "wait":
                JOBS.remove(name).getJobExecutionResult().get();
                break;
            case "cancel all":
                cancelAll();
                break;
            case "stop":
                String directory = command.get("directory").asText();
                SavepointFormatType format = SavepointFormatType.CANONICAL;
                answer.put("savepoint", JOBS.remove(name).stopWithSavepoint(false, directory, format).get());
                break;
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    private static void cancelAll() throws InterruptedException {
        for (JobClient each : JOBS.values()) {
            try {
                each.cancel().get();
            } catch (ExecutionException | IllegalStateException ended) {
                // Its cluster has ended with it.
            }
        }
        JOBS.clear();
    }

    /** Runs statements in batch mode, and gives the rows of the last one. */
    private static List<List<Object>> sql(JsonNode command) throws Exception {
        Configuration configuration = configuration(command);
        TableEnvironment tables =
                TableEnvironment.create(
                        EnvironmentSettings.newInstance().inBatchMode().withConfiguration(configuration).build());
        useCatalog(tables, command);
        List<List<Object>> found = new ArrayList<>();
        for (JsonNode statement : command.get("statements")) {
            found.clear();
            TableResult result = tables.executeSql(statement.asText());
            try (CloseableIterator<Row> rows = result.collect()) {
                rows.forEachRemaining(row -> found.add(values(row)));
            }
        }
        return found;
    }

    /** Starts a job of INSERT statements, after the other ones. */
    private static void run(String name, JsonNode command) throws Exception {
        StreamTableEnvironment tables = streaming(command);
        StatementSet together = tables.createStatementSet();
        for (JsonNode statement : command.get("statements")) {
            String text = statement.asText();
            if (text.startsWith("INSERT")) {
                together.addInsertSql(text);
            } else {
                tables.executeSql(text);
            }
        }
        JOBS.put(name, together.execute().getJobClient().get());
    }

    /** Starts the job that compacts a table which its writers leave alone. */
    private static void compact(String name, JsonNode command) throws Exception {
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(configuration(command));
        Map<String, String> catalog = Collections.singletonMap("warehouse", command.get("warehouse").asText());
        CompactAction action = new CompactAction("db", command.get("table").asText(), catalog, new HashMap<>());
        action.withStreamExecutionEnvironment(environment).build();
        JOBS.put(name, environment.executeAsync(name));
    }

    private static void follow(String name, JsonNode command) throws Exception {
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(configuration(command));
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        useCatalog(tables, command);
        FOLLOWED.put(name, Collections.synchronizedList(new ArrayList<>()));
        tables.toChangelogStream(tables.sqlQuery(command.get("query").asText())).addSink(new Collected(name));
        JOBS.put(name, environment.executeAsync(name));
    }

    private static List<List<Object>> changes(String name) {
        List<List<Object>> rows = FOLLOWED.get(name);
        synchronized (rows) {
            return new ArrayList<>(rows);
        }
    }

    private static StreamTableEnvironment streaming(JsonNode command) {
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(configuration(command));
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        useCatalog(tables, command);
        for (JsonNode feed : command.path("feeds")) {
            String name = feed.asText();
            tables.createTemporaryView(
                    "`" + name + "`",
                    tables.fromChangelogStream(environment.addSource(new FeedSource(name), FEEDS.get(name).type)));
        }
        return tables;
    }

    private static void useCatalog(TableEnvironment tables, JsonNode command) {
        tables.executeSql(
                String.format(
                        "CREATE CATALOG lake WITH ('type'='paimon', 'warehouse'='%s')",
                        command.get("warehouse").asText()));
        tables.executeSql("USE CATALOG lake");
        tables.executeSql("CREATE DATABASE IF NOT EXISTS db");
        tables.executeSql("USE db");
    }

    /** Small clusters, which listen on this machine only, and save no more than the test asks for. */
    private static Configuration configuration(JsonNode command) {
        Configuration found = new Configuration();
        for (String each : new String[] {"jobmanager.bind-host", "taskmanager.bind-host", "rest.bind-address"}) {
            found.setString(each, "127.0.0.1");
        }
        found.setString("rest.address", "127.0.0.1");
        found.setString("taskmanager.memory.network.min", "32mb");
        found.setString("taskmanager.memory.network.max", "32mb");
        found.setString("taskmanager.memory.managed.size", "64mb");
        found.setString("restart-strategy.type", "fixed-delay");
        found.setString("restart-strategy.fixed-delay.attempts", "3");
        found.setString("restart-strategy.fixed-delay.delay", "0 s");
        found.setString("table.exec.sink.upsert-materialize", "NONE");
        found.setString("table.local-time-zone", "UTC");
        Iterator<Map.Entry<String, JsonNode>> given = command.path("settings").fields();
        while (given.hasNext()) {
            Map.Entry<String, JsonNode> each = given.next();
            found.setString(each.getKey(), each.getValue().asText());
        }
        return found;
    }

    private static List<Object> values(Row row) {
        List<Object> found = new ArrayList<>();
        found.add(row.getKind().shortString());
        for (int field = 0; field < row.getArity(); field++) {
            Object value = row.getField(field);
            found.add(value == null || value instanceof Number || value instanceof Boolean ? value : value.toString());
        }
        return found;
    }

    /** Rows with their kinds that a test gives to a job. They stay, for a job that continues. */
    private static final class Feed {
        final TypeInformation<Row> type;
        private final List<Row> rows = new ArrayList<>();
        private final List<String> types = new ArrayList<>();
        private boolean ended;
        private boolean fails;

        Feed(JsonNode columns) {
            List<String> names = new ArrayList<>();
            List<TypeInformation<?>> found = new ArrayList<>();
            for (JsonNode column : columns) {
                names.add(column.get(0).asText());
                types.add(column.get(1).asText());
                found.add(typeOf(column.get(1).asText()));
            }
            type = Types.ROW_NAMED(names.toArray(new String[0]), found.toArray(new TypeInformation<?>[0]));
        }

        private static TypeInformation<?> typeOf(String name) {
            switch (name) {
                case "BIGINT":
                    return Types.LONG;
                case "INT":
                    return Types.INT;
                case "STRING":
                    return Types.STRING;
                default:
                    throw new IllegalArgumentException(name);
            }
        }

        private static Object value(JsonNode given, String type) {
            if (given.isNull()) {
                return null;
            }
            return type.equals("BIGINT") ? (Object) given.asLong() : type.equals("INT") ? given.asInt() : given.asText();
        }

        synchronized void push(JsonNode given) {
            for (JsonNode each : given) {
                Row row = new Row(kind(each.get(0).asText()), types.size());
                for (int field = 0; field < types.size(); field++) {
                    row.setField(field, value(each.get(field + 1), types.get(field)));
                }
                rows.add(row);
            }
            notifyAll();
        }

        private static RowKind kind(String name) {
            for (RowKind each : RowKind.values()) {
                if (each.shortString().equals(name)) {
                    return each;
                }
            }
            throw new IllegalArgumentException(name);
        }

        synchronized void end() {
            ended = true;
            notifyAll();
        }

        synchronized void fail() {
            fails = true;
            notifyAll();
        }

        /** The row at a position; null if there is none for now. */
        synchronized Row at(long position) throws InterruptedException {
            if (position >= rows.size() && !ended && !fails) {
                wait(100);
            }
            if (fails) {
                fails = false;
                throw new IllegalStateException("the test lets this job fail");
            }
            return position < rows.size() ? rows.get((int) position) : null;
        }

        synchronized boolean isOver(long position) {
            return ended && position >= rows.size();
        }
    }

    /** Reads a feed from where the last checkpoint was. */
    private static final class FeedSource extends RichSourceFunction<Row> implements CheckpointedFunction {
        private final String name;
        private volatile boolean running = true;
        private long position;
        private transient ListState<Long> saved;

        FeedSource(String name) {
            this.name = name;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            saved = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("position", Types.LONG));
            for (Long each : saved.get()) {
                position = each;
            }
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            saved.update(Collections.singletonList(position));
        }

        @Override
        public void run(SourceContext<Row> context) throws Exception {
            Feed feed = FEEDS.get(name);
            while (running && !feed.isOver(position)) {
                Row row = feed.at(position);
                if (row != null) {
                    synchronized (context.getCheckpointLock()) {
                        context.collect(row);
                        position++;
                    }
                }
            }
        }

        @Override
        public void cancel() {
            running = false;
        }
    }

    private static final class Collected implements SinkFunction<Row> {
        private final String name;

        Collected(String name) {
            this.name = name;
        }

        @Override
        public void invoke(Row row, Context context) {
            FOLLOWED.get(name).add(values(row));
        }
    }
}
