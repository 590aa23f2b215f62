import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.fileindex.FileIndexFormat;
import org.apache.paimon.fileindex.FileIndexWriter;
import org.apache.paimon.fileindex.FileIndexer;
import org.apache.paimon.options.Options;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypes;

/**
 * Prints file indexes of known values, one JSON object per line: the sample in {@code filtering/java_indexes.jsonl}.
 *
 * <p>Run it with the jars of pom.xml: {@code java -cp "jars/*" FileIndexes.java}.
 */
public class FileIndexes {

    public static void main(String[] arguments) throws Exception {
        Object[] integers = {3, null, -7, 3, 3, 3, 3, 3, 3, 3, 0, 12, null, 100, -128, 127};
        Object[][] numbers = new Object[4][integers.length];
        for (int i = 0; i < integers.length; i++) {
            Integer value = (Integer) integers[i];
            numbers[0][i] = value == null ? null : (Object) value.byteValue();
            numbers[1][i] = value == null ? null : (Object) (short) (value * 200);
            numbers[2][i] = value == null ? null : (Object) (value * 10_000_000);
            numbers[3][i] = value == null ? null : (Object) (value * 50_000_000_000_000_000L);
        }
        String[] all = {"bloom-filter", "bitmap", "bitmap-1", "range-bitmap", "bsi"};
        print("TINYINT", DataTypes.TINYINT(), numbers[0], all);
        print("SMALLINT", DataTypes.SMALLINT(), numbers[1], all);
        print("INT", DataTypes.INT(), numbers[2], all);
        print("BIGINT", DataTypes.BIGINT(), numbers[3], all);
        Object[] days = {19_000, null, -400, 0, 0, 1};
        print("DATE", DataTypes.DATE(), days, all);
        Object[] times = {0, 1, null, 86_399_999, 43_200_000, 43_200_000};
        print("TIME(3)", DataTypes.TIME(3), times, all);
        Object[] flags = {true, false, null, true};
        print("BOOLEAN", DataTypes.BOOLEAN(), flags, "bitmap", "bitmap-1", "range-bitmap");
        print("BOOLEAN", DataTypes.BOOLEAN(), new Object[] {true, true}, "bitmap", "bitmap-1", "range-bitmap");
        Object[] floats = {0.0f, -0.0f, 1.5f, null, Float.NaN, Float.POSITIVE_INFINITY, -3.25f, 0.1f};
        Object[] doubles = {-0.0d, 1.5d, null, Double.NaN, Double.NEGATIVE_INFINITY, -3.25d, 0.1d, 1e300};
        print("FLOAT", DataTypes.FLOAT(), floats, "bloom-filter", "bitmap", "bitmap-1", "range-bitmap");
        print("DOUBLE", DataTypes.DOUBLE(), doubles, "bloom-filter", "bitmap", "bitmap-1", "range-bitmap");
        List<Object> decimals = new ArrayList<>();
        for (String text : new String[] {"1.50", "-1.50", "0.00", "99999999.99", "-0.01"}) {
            decimals.add(Decimal.fromBigDecimal(new BigDecimal(text), 10, 2));
        }
        decimals.add(null);
        print("DECIMAL(10, 2)", DataTypes.DECIMAL(10, 2), decimals.toArray(), "range-bitmap", "bsi");
        String[] words = {"", "a", "ab", null, "b", "b", "\u00e9", "\uffee", "\ud83d\ude00", "a longer text of 37 letters, and more."};
        Object[] texts = new Object[words.length];
        for (int i = 0; i < words.length; i++) {
            texts[i] = words[i] == null ? null : BinaryString.fromString(words[i]);
        }
        print("STRING", DataTypes.STRING(), texts, "bloom-filter", "bitmap", "bitmap-1", "range-bitmap");
        print("VARCHAR(50)", DataTypes.VARCHAR(50), texts, "bloom-filter", "bitmap", "bitmap-1", "range-bitmap");
        Object[] bytes = {new byte[0], new byte[] {1, -1}, null, new byte[40]};
        print("BYTES", DataTypes.BYTES(), bytes, "bloom-filter");
        for (int precision : new int[] {0, 3, 6, 9}) {
            List<Object> moments = new ArrayList<>();
            for (String text : new String[] {"1969-12-31T23:59:59", "1970-01-01T00:00:00", "2024-02-29T12:34:56"}) {
                int nanos = precision == 0 ? 0 : precision == 3 ? 7_000_000 : precision == 6 ? 7_001_000 : 7_001_002;
                moments.add(Timestamp.fromLocalDateTime(LocalDateTime.parse(text).plusNanos(nanos)));
                moments.add(null);
            }
            String[] most = {"bloom-filter", "bitmap", "bitmap-1", "bsi"};
            String[] kinds = precision > 6 ? most : all;
            print("TIMESTAMP(" + precision + ")", DataTypes.TIMESTAMP(precision), moments.toArray(), kinds);
            DataType local = DataTypes.TIMESTAMP_WITH_LOCAL_TIME_ZONE(precision);
            print("TIMESTAMP(" + precision + ") WITH LOCAL TIME ZONE", local, moments.toArray(), kinds);
        }
        print("INT", DataTypes.INT(), new Object[] {null, null}, all);
        print("INT", DataTypes.INT(), new Object[] {5}, all);
        // Many values: blocks and chunks of the dictionaries, and each kind of container of a bitmap.
        Object[] many = new Object[6_000];
        Object[] named = new Object[6_000];
        for (int i = 0; i < many.length; i++) {
            many[i] = i < 2_000 ? (Object) 1 : i % 7 == 0 ? null : (Object) (i % 2 == 0 ? 2 : 5 + i % 60);
            named[i] = many[i] == null ? null : BinaryString.fromString("name " + many[i]);
        }
        print("INT", DataTypes.INT(), many, all);
        print("STRING", DataTypes.STRING(), named, "bloom-filter", "bitmap", "bitmap-1", "range-bitmap");
        Object[] wide = new Object[140_000];
        for (int i = 0; i < wide.length; i++) {
            wide[i] = i % 2 == 0 ? (Object) (byte) 1 : i % 10_000 == 1 ? null : (Object) (byte) 2;
        }
        print("TINYINT", DataTypes.TINYINT(), wide, "range-bitmap");
    }

    private static void print(String sql, DataType type, Object[] values, String... kinds) throws Exception {
        StringBuilder text = new StringBuilder();
        for (Object value : values) {
            text.append(text.length() == 0 ? "" : ", ").append(json(value));
        }
        String shown = values.length > 1_000 ? "null" : "[" + text + "]";
        for (String kind : kinds) {
            Options options = new Options();
            boolean first = kind.equals("bitmap-1");
            options.set("version", first ? "1" : "2");
            options.set("items", "64");
            options.set("index-block-size", "200 b");
            if (type != DataTypes.BOOLEAN()) {
                options.set("chunk-size", "100 b");
            }
            String name = first ? "bitmap" : kind;
            FileIndexWriter writer = FileIndexer.create(name, type, options).createWriter();
            for (Object value : values) {
                writer.writeRecord(value);
            }
            Map<String, Map<String, byte[]>> indexes = new LinkedHashMap<>();
            indexes.computeIfAbsent("other", any -> new LinkedHashMap<>()).put(name, new byte[] {9, 9});
            indexes.computeIfAbsent("c\u00e9", any -> new LinkedHashMap<>()).put(name, writer.serializedBytes());
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            try (FileIndexFormat.Writer container = FileIndexFormat.createWriter(out)) {
                container.writeColumnIndexes(indexes);
            }
            String encoded = Base64.getEncoder().encodeToString(out.toByteArray());
            System.out.printf(
                    "{\"type\": \"%s\", \"index\": \"%s\", \"values\": %s, \"bytes\": \"%s\"}%n", sql, kind, shown, encoded);
        }
    }

    private static String json(Object value) {
        if (value == null) {
            return "null";
        }
        if (value instanceof byte[]) {
            return '"' + Base64.getEncoder().encodeToString((byte[]) value) + '"';
        }
        if (value instanceof Timestamp) {
            return "[" + ((Timestamp) value).getMillisecond() + ", " + ((Timestamp) value).getNanoOfMillisecond() + "]";
        }
        if (value instanceof Boolean || value instanceof Number && !(value instanceof Float || value instanceof Double)) {
            return value.toString();
        }
        return '"' + value.toString() + '"';
    }
}
