import java.util.Collections;
import org.apache.paimon.rest.RESTCatalogServer;
import org.apache.paimon.rest.auth.BearTokenAuthProvider;
import org.apache.paimon.rest.responses.ConfigResponse;

/** Paimon's REST catalog over a directory: prints its address, and ends with its input. */
public final class RestCatalog {

    public static void main(String[] arguments) throws Exception {
        ConfigResponse config =
                new ConfigResponse(Collections.singletonMap("prefix", "paimon"), Collections.emptyMap());
        RESTCatalogServer server =
                new RESTCatalogServer(arguments[0], new BearTokenAuthProvider("token"), config, "lake");
        server.start();
        System.out.println(server.getUrl());
        while (System.in.read() >= 0) {
            // Until the input ends.
        }
        server.shutdown();
        System.exit(0);
    }
}
