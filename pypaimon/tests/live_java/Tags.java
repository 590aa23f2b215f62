import java.time.Duration;
import java.util.Map;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.tag.Tag;
import org.apache.paimon.tag.TagAutoManager;
import org.apache.paimon.utils.Pair;

/** Tags, by the calls of Java's procedures. */
final class Tags {
    private Tags() {}

    /** operation; name; snapshot; retention: in milliseconds; new_name. */
    static void run(FileStoreTable table, JsonNode command, ObjectNode reply) throws Exception {
        String name = command.path("name").asText();
        Duration retention =
                command.hasNonNull("retention") ? Duration.ofMillis(command.get("retention").asLong()) : null;
        switch (command.get("operation").asText()) {
            case "create" -> table.createTag(name, command.get("snapshot").asLong(), retention);
            case "replace" -> table.replaceTag(name, command.get("snapshot").asLong(), retention);
            case "rename" -> table.renameTag(name, command.get("new_name").asText());
            case "delete" -> table.deleteTag(name);
            case "automatic" -> {
                TagAutoManager manager = table.newTagAutoManager();
                if (manager.getTagAutoCreation() != null) {
                    manager.getTagAutoCreation().run();
                }
            }
            case "list" -> list(table, reply.putArray("tags"));
            case "keys" -> keys(table.copy(Map.of("scan.tag-name", name)), reply.putArray("keys"));
            default -> throw new IllegalArgumentException("no such operation: " + command);
        }
    }

    private static void list(FileStoreTable table, ArrayNode tags) {
        for (Pair<Tag, String> each : table.tagManager().tagObjects()) {
            Tag tag = each.getLeft();
            ObjectNode entry = tags.addObject().put("name", each.getRight()).put("snapshot", tag.id());
            if (tag.getTagTimeRetained() != null) {
                entry.put("retention", tag.getTagTimeRetained().toMillis());
                entry.put("created", tag.getTagCreateTime().toString());
            }
        }
    }

    /** The first column of the rows of a tag, which is a BIGINT. */
    private static void keys(FileStoreTable table, ArrayNode keys) throws Exception {
        ReadBuilder builder = table.newReadBuilder();
        try (RecordReader<InternalRow> reader = builder.newRead().createReader(builder.newScan().plan())) {
            reader.forEachRemaining(row -> keys.add(row.getLong(0)));
        }
    }
}
